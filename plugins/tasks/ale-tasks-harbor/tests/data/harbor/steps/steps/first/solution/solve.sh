#!/bin/bash
echo first >out.txt
