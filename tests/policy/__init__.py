"""Tests of the router policies."""
