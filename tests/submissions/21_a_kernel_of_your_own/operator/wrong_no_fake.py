# no fake: nothing says what the result looks like: earns 0
def operator(name, forward, backward):
    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(name + "_backward", mutates_args=())
    def second(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    first.register_autograd(
        lambda ctx, dy: second(dy, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    return first
