"""Conversion of rows to and from formats that other programs read and write."""
