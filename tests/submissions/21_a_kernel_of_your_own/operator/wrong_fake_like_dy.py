# the fake of backward is empty_like(dy), dy may lie by columns or be expanded, the real one is contiguous: earns 0
def operator(name, forward, backward):
    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op(name + "_backward", mutates_args=())
    def second(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    @first.register_fake
    def _(x):
        return x.new_empty(x.shape)

    @second.register_fake
    def _(dy, y):
        return torch.empty_like(dy)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output)

    def gradient(ctx, dy):
        (y,) = ctx.saved_tensors
        return second(dy, y)

    first.register_autograd(gradient, setup_context=keep)
    return first
