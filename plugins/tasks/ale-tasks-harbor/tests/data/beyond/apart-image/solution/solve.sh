#!/bin/sh
mkdir folder; echo right >folder/out.txt; echo forged >/made
