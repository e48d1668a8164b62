# the graph as it came: earns 0
def addcmul_backend(graph, example_inputs):
    return graph.forward
