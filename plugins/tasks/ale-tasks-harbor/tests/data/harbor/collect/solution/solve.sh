#!/bin/sh
touch out.txt
