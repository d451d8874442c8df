"""Stages on a Dask cluster: `compute.cluster` says where it is, each stage has a module for what it asks of workers."""
