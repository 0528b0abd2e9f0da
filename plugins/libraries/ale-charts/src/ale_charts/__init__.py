"""Pages of one file with line charts; a library."""

from ale_charts.chart import Chart, Series
from ale_charts.document import document
from ale_charts.drawing import draw, number, sparkline

__all__ = ["Chart", "Series", "document", "draw", "number", "sparkline"]
