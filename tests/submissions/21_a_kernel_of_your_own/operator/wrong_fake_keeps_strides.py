# the fake has x's strides, and the result is contiguous: earns 0
def operator(name, forward, backward):
    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(name + "_backward", mutates_args=())
    def second(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    first.register_fake(lambda x: torch.empty_like(x))
    second.register_fake(lambda dy, y: torch.empty_like(y))
    first.register_autograd(
        lambda ctx, dy: second(dy, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    return first
