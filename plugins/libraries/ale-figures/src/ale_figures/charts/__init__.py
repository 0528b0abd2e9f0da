"""Single-file HTML pages with line charts; a library."""

from ale_figures.charts.chart import Chart, Series
from ale_figures.charts.page import render
from ale_figures.charts.rendering import number, sparkline

__all__ = ["Chart", "Series", "number", "render", "sparkline"]
