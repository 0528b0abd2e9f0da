"""Formats that others read and write: in and out of rows."""
