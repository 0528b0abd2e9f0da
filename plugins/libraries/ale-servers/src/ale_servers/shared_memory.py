"""Weights in memory that the processes of one machine share: POSIX shared memory, or a GPU's memory
through CUDA IPC.

A buffer begins with the digest of its weights, in `HEADER` hexadecimal digits. It is removed before
other weights are written and set after that, so who finds it both before and after reading has read
one version whole.

Only PyTorch (the extra ``torch``) and the standard library are imported: a server program whose
environment lacks `ale` gets a copy of this module.
"""

import contextlib
import ctypes
import mmap
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

HEADER = 64
_ALIGNED = 256
"""Bytes; no type needs more."""
_IPC_SIZE = 64
_WITH_PEERS = 1
"""CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS"""


def layout(tensors: Mapping[str, Tensor]) -> tuple[list[dict[str, Any]], int]:
    """Where each tensor lies in a buffer, as `records.Part`, and the buffer's size in bytes."""
    parts, end = [], HEADER
    for name, each in tensors.items():
        begin = -(-end // _ALIGNED) * _ALIGNED
        parts.append(
            {"name": name, "dtype": str(each.dtype), "shape": list(each.shape), "begin": begin}
        )
        end = begin + each.nbytes
    return parts, end


def views(buffer: Tensor, parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of a buffer, without copying."""
    for part in parts:
        dtype = getattr(torch, part["dtype"].removeprefix("torch."))
        size = torch.Size(part["shape"]).numel() * dtype.itemsize
        values = buffer[part["begin"] : part["begin"] + size].view(dtype)
        yield part["name"], values.reshape(part["shape"])


def set_digest(buffer: Tensor, digest: str | None) -> None:
    """Say which weights the buffer holds from now on; None for none."""
    _synchronize(buffer)
    text = (digest or "").encode().ljust(HEADER)
    buffer[:HEADER].copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
    _synchronize(buffer)


def check_digest(buffer: Tensor, digest: str) -> None:
    """Raises `OSError` if the buffer does not hold these weights (any more)."""
    _synchronize(buffer)
    found = bytes(buffer[:HEADER].cpu().numpy()).decode().strip()
    if found != digest:
        holds = f"the weights {found[:12]}" if found else "weights that are being written"
        raise OSError(f"the shared memory holds {holds}; expected {digest[:12]}")


def _synchronize(buffer: Tensor) -> None:
    if buffer.is_cuda:
        torch.cuda.synchronize(buffer.device)


def opened(memory: Mapping[str, Any]) -> Tensor:
    """The bytes of another process's memory, which is not unmapped while a view of them is left.

    Args:
        memory: the fields of a `records.Memory`.

    Raises:
        OSError: this process can't open it.
    """
    if memory["handle"]:
        return _opened_on_gpu(memory)
    return file_buffer(memory["file"], memory["size"])


def file_buffer(path: str, size: int, *, create: bool = False) -> Tensor:
    """The bytes of a file, mapped.

    Args:
        create: make the file and reserve its memory.

    Raises:
        OSError: the file is missing or shorter, or there is too little memory.
    """
    flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if create:
            os.posix_fallocate(descriptor, 0, size)  # else the first write to a full disk kills
        found = os.fstat(descriptor).st_size
        if found < size:
            raise OSError(f"{path} has {found} bytes; expected {size}")
        return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
    finally:
        os.close(descriptor)


def gpu_buffer(size: int, device: torch.device) -> tuple[Tensor, str, str]:
    """New memory of a GPU, its CUDA IPC handle in hexadecimal digits, and the GPU's UUID.

    It is not from PyTorch's allocator, whose memory can't be exported if its segments may grow.

    Raises:
        OSError: there is too little memory, or this system has no CUDA IPC.
    """
    torch.cuda.synchronize(device)  # makes the GPU's context the present one
    with torch.cuda.device(device):
        pointer, handle = ctypes.c_uint64(), _Handle()
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        buffer = _tensor(pointer.value, size, device, "cuMemFree_v2")
        _call("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
    return buffer, bytes(handle.bytes).hex(), gpu_of(device)


def gpu_of(device: torch.device) -> str:
    """A GPU's UUID."""
    return str(torch.cuda.get_device_properties(device).uuid)


def _opened_on_gpu(memory: Mapping[str, Any]) -> Tensor:
    devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    here = [each for each in devices if gpu_of(each) == memory["gpu"]]
    if not here:
        uses = ", ".join(map(gpu_of, devices)) or "none"
        raise OSError(f"the weights are on GPU {memory['gpu']}; this process uses {uses}")
    (device,) = here
    torch.cuda.synchronize(device)
    with torch.cuda.device(device):
        pointer = ctypes.c_uint64()
        handle = _Handle.from_buffer_copy(bytes.fromhex(memory["handle"]))
        _call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, ctypes.c_uint(_WITH_PEERS))
        return _tensor(pointer.value, memory["size"], device, "cuIpcCloseMemHandle")


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_ubyte * _IPC_SIZE),)


class _Memory:
    """Memory of a GPU, as PyTorch takes it from other libraries."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def _tensor(pointer: int, size: int, device: torch.device, end: str) -> Tensor:
    """The memory as a tensor; `end` is the function that ends its use with the last view."""
    memory = _Memory(pointer, size)
    weakref.finalize(memory, _end, end, pointer, device)
    return torch.as_tensor(memory, device=device)


def _end(name: str, pointer: int, device: torch.device) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # the process may be ending
        torch.cuda.synchronize(device)
        with torch.cuda.device(device):
            _call(name, ctypes.c_uint64(pointer))


def _call(name: str, *arguments: Any) -> None:
    """A function of the CUDA driver."""
    driver = ctypes.CDLL("libcuda.so.1")
    if status := getattr(driver, name)(*arguments):
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        raise OSError(f"{name} failed: {(text.value or b'').decode()} ({status})")
