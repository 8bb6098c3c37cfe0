"""The metric catalogue, and the reading of every framework's keys into it."""

from gradwatch.metrics.catalogue import METRICS, metric
from gradwatch.metrics.keys import Axes, resolve
from gradwatch.metrics.metric import Metric

__all__ = ["METRICS", "Axes", "Metric", "metric", "resolve"]
