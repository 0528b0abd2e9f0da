#!/bin/sh
echo right >out.txt
