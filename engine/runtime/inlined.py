"""Kernels as parts of other kernels.

A kernel that calls another one takes it in whole (`OPTIONS` of `engine.runtime.jit`). To numba each of them is also a
function of its own: optimised with all that it calls, turned into machine code, wrapped for Python, and then
optimised again in each kernel that calls it. Most are called by kernels alone, and that was a third of all compiling.

So a kernel is two things. What Python calls is compiled by numba as ever. What other kernels take in is lowered to
LLVM's instructions and goes no further, but that one which calls no other is optimised: its loops, and so the order of
its sums, are then the same wherever it ends up. Sums that matter belong into such a kernel. What a kernel takes in
of another is the same whether or not Python has called that one before, and from the cache, too.
"""

from llvmlite import binding as llvm
from numba.core import compiler, funcdesc, lowering, typed_passes
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.environment import lookup_environment
from numba.core.registry import CPUDispatcher
from numba.core.targetconfig import TargetConfig


def _values(config: TargetConfig) -> dict:
    """What `TargetConfig.values` gives, at once: it is asked for each time that numba looks for an overload."""
    return _DEFAULTS[type(config)] | config._values


class _Defaults(dict):
    def __missing__(self, kind: type[TargetConfig]) -> dict:
        self[kind] = {name: option.default for name, option in kind.options.items()}
        return self[kind]


_DEFAULTS = _Defaults()
TargetConfig.values = _values


class _Library(JITCodeLibrary):
    """The instructions of a kernel and of those that it calls, without machine code."""

    def _optimize_final_module(self):
        if not any(isinstance(library, _Library) for library in self._linking_libraries):
            super()._optimize_final_module()

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self):
        return self.name, self._get_module_for_linking().as_bitcode()

    @classmethod
    def restored(cls, codegen, name, bitcode):
        library = cls(codegen, name)
        library._final_module = library._shared_module = llvm.parse_bitcode(bitcode)
        library._finalized = True
        return library


class _WholeLibrary(JITCodeLibrary):
    """What Python calls, with copies of its own of what it takes in and is not inlined.

    Copies under one name would be one: that of the kernel which was loaded first.
    """

    def _optimize_final_module(self):
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = llvm.Linkage.internal
        super()._optimize_final_module()


class _Entry:
    """In place of a compiled function; nobody calls it."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(LoweringPass):
    """numba's last pass without wrappers and machine code."""

    _name = "lower_part"

    def __init__(self):
        LoweringPass.__init__(self)

    def run_pass(self, state):
        library = state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        library._reload_init.update(state.reload_init)
        flags = state.flags
        described = funcdesc.PythonFunctionDescriptor.from_specialized_function(
            state.func_ir, state.typemap, state.return_type, state.calltypes, mangler=state.targetctx.mangler,
            inline=flags.forceinline, noalias=flags.noalias, abi_tags=[flags.get_mangle_string()],
        )  # fmt: skip
        with state.targetctx.push_code_library(library):
            lower = lowering.Lower(state.targetctx, library, described, state.func_ir, metadata=state.metadata)
            lower.lower()
        library.finalize()
        entry = _Entry()
        state.targetctx.insert_user_function(entry, described, [library])
        state["cr"] = compiler._LowerResult(described, lower.call_helper, cfunc=entry, env=lower.env)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerWhole(typed_passes.NativeLowering):
    """numba's last pass, which gives a function its environment; here those that it takes in get theirs as well."""

    _name = "lower_whole"

    def run_pass(self, state):
        state.library = _WholeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        done = super().run_pass(state)
        for variable in state.library._final_module.global_variables:
            environment = lookup_environment(variable.name)
            if environment is not None:
                state.library.codegen.set_env(variable.name, environment)
        return done


class Whole(compiler.CompilerBase):
    """How what Python calls is compiled."""

    last = _LowerWhole

    def define_pipelines(self):
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.last if step is typed_passes.NativeLowering else step, why) for step, why in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


class _Part(Whole):
    """How what kernels take in is compiled."""

    last = _LowerPart


class _Kept(CompileResultCacheImpl):
    """Parts on disk, beside what Python calls."""

    def get_filename_base(self, fullname, abiflags):
        return f"part-{super().get_filename_base(fullname, abiflags)}"

    def rebuild(self, target_context, payload):
        (name, bitcode), described, env, signature, objectmode, lifted, annotation, reload_init, envs = payload
        return compiler.compile_result(
            target_context=target_context, typing_context=target_context.typing_context, entry_point=_Entry(),
            library=_Library.restored(target_context.codegen(), name, bitcode), fndesc=described, environment=env,
            signature=signature, objectmode=objectmode, lifted=lifted, type_annotation=annotation,
            reload_init=reload_init, referenced_envs=envs,
        )  # fmt: skip


class _Cache(FunctionCache):
    _impl_class = _Kept


class InlinedKernel(CPUDispatcher):
    """What kernels that call a kernel find in its place."""

    def enable_caching(self):
        self._cache = _Cache(self.py_func)

    def add_overload(self, cres):
        self.overloads[tuple(cres.signature.args)] = cres


def give_part(whole: CPUDispatcher) -> None:
    """Let kernels that call this one take in its part; `whole` itself is what Python calls."""
    part = InlinedKernel(whole.py_func, targetoptions=whole.targetoptions, pipeline_class=_Part)
    if whole.stats.cache_path:
        part.enable_caching()
    whole.get_call_template, whole.get_overload = part.get_call_template, part.get_overload
