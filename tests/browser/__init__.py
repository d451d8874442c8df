"""A package, so that its test_report.py and that of tests/tasks can have the same name."""
