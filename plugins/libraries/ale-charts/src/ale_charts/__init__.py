"""Single-file HTML pages with line charts; a library."""

from ale_charts.chart import Chart, Series
from ale_charts.page import render
from ale_charts.rendering import number, sparkline

__all__ = ["Chart", "Series", "number", "render", "sparkline"]
