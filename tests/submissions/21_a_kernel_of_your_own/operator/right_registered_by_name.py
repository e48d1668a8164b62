def operator(name, forward, backward):
    space, word = name.split("::")
    grad_name = f"{space}::grad_of_{word}"

    @torch.library.custom_op(grad_name, mutates_args=())
    def slope(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return backward(dy, y)

    @torch.library.custom_op(name, mutates_args=())
    def value(x: torch.Tensor) -> torch.Tensor:
        return forward(x)

    torch.library.register_fake(name, lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))
    torch.library.register_fake(grad_name, lambda dy, y: torch.empty_like(y, memory_format=torch.contiguous_format))
    torch.library.register_autograd(
        name,
        lambda ctx, dy: slope(dy, ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    return value
