"""Figures: what one shows (`…_info`, pure and comparable), and how Plotly draws it (`…_figure`).

A figure is Plotly's JSON object rather than a `go.Figure`: building and encoding a page's twelve charts takes a fifth of the time,
and they are built beside the collector's ingest.
"""
