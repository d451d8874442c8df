"""One module for each family of models beside the chain: classifiers of bags of counts so far."""
