# keeps x for backward and computes y again: earns 0
def operator(name, forward, backward):
    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(name + "_backward", mutates_args=())
    def second(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return backward(dy, forward(x))

    first.register_fake(lambda x: x.new_empty(x.shape))
    second.register_fake(lambda dy, x: x.new_empty(x.shape))
    first.register_autograd(
        lambda ctx, dy: second(dy, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    return first
