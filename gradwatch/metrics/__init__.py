"""The metric catalogue, and the reading of every framework's keys into it."""

from gradwatch.metrics.catalogue import METRICS, Metric, metric
from gradwatch.metrics.keys import Axes, resolve

__all__ = ["METRICS", "Axes", "Metric", "metric", "resolve"]
