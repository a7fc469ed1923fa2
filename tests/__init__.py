"""Tests of kvindex."""
