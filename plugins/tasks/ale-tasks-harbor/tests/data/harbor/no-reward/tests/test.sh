#!/bin/sh
echo looked at everything
