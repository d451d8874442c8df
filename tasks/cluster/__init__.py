"""Stages on a Dask cluster: `train.cluster` says where it is, each stage has a module for what it asks of workers."""
