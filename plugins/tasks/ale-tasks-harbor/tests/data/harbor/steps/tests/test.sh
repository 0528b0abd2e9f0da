#!/bin/bash
[ ! -e /tests/of-second ] && bash /tests/judge.sh first
