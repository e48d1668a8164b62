# the second operator always has one name, the next call of operator() replaces the backward of the ones before: earns 0
def operator(name, forward, backward):
    @torch.library.custom_op(name, mutates_args=())
    def first(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    @torch.library.custom_op("lesson21::sigmoid_backward", mutates_args=())
    def second(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    @first.register_fake
    def _(x):
        return x.new_empty(x.shape)

    @second.register_fake
    def _(dy, y):
        return y.new_empty(y.shape)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output)

    def gradient(ctx, dy):
        (y,) = ctx.saved_tensors
        return second(dy, y)

    first.register_autograd(gradient, setup_context=keep)
    return first
