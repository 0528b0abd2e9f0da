"""Trains a transformers model on credited episodes; the objective is composed of named parts."""
