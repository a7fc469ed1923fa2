"""Tests of the live feed, most of them over real sockets on loopback."""
