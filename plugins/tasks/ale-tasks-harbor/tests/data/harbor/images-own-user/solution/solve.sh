#!/bin/sh
id -un >out.txt
