#!/bin/sh
echo hello >out.txt
