# one all-reduce, and nobody divides by the number of ranks: earns 0
def repair_step(script):
    def share(model):
        if dist.is_initialized():
            grads = [p.grad for p in model.parameters()]
            flat = nn.utils.parameters_to_vector(grads)
            dist.all_reduce(flat)
            nn.utils.vector_to_parameters(flat, grads)

    return script.replace(share=share)
