#!/bin/sh
echo right >out.txt; echo other >other.txt; touch /logs/artifacts/log
