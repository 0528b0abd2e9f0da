#!/bin/bash
touch /done
