"""`/metrics`: active runs, their findings and the collector's own figures, read at scrape time."""

from gradwatch.exporters.prometheus.exporter import PrometheusExporter
from gradwatch.exporters.prometheus.source import Source, Vitals

__all__ = ["PrometheusExporter", "Source", "Vitals"]
