"""Tests of the module; they run with the standard library's unittest."""
