# pplan and prun: one Makefile for everything.  `make help` lists the targets.
#
# Sources are found by wildcard, so a new file needs no line here.  Everything
# that is built lies under build/: build/gen (generated sources, shared), and
# one folder per variant with its objects, libraries and programs:
#
#   release   gcc, optimised: what is installed
#   asan      gcc with address and undefined-behaviour sanitizers: what tests run
#   clang     clang, optimised: the goldens run on it too
#   tsan      gcc with the thread sanitizer: tests of ranks that are threads

# ---- settings a user may give on the command line ----

PREFIX  ?= /usr/local
DESTDIR ?=
WERROR  ?= -Werror
# The plug-in for GPUs: auto (where a toolkit is found), yes (an error without), no; and for which of them beside later ones.
WITH_CUDA  ?= auto
# `make check` compiles kernels for one kind of GPU, `make check-all` for all.
CUDA_ARCHS ?= $(if $(filter check,$(MAKECMDGOALS)),90,80 90 100)
# The plug-in for ranks on several machines: auto (where mpicc is found), yes (an error without), no.
WITH_MPI ?= auto
# The emulator of CUDA that tests use: auto (where NVIDIA's headers are found), yes (an error without), no.
WITH_EMU ?= auto

# Debian packages: the tools, the libraries, and the English text of `make demo`.
PACKAGES = gcc g++ libc6-dev make clang flex bison libdnnl-dev libopenblas-serial-dev libjansson-dev \
           libxxhash-dev libcmocka-dev bible-kjv

# ---- flags ----

VERSION  := $(shell cat VERSION)
CPPFLAGS  = -I. -Ibuild/gen -D_GNU_SOURCE
STRICT    = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion $(WERROR)
GENERATED_WARN = -Wall -Wextra $(WERROR)
# The serial OpenBLAS by name: another one may be the system's default, and brings threads of its own.
OPENBLAS  = /usr/lib/x86_64-linux-gnu/openblas-serial
LIBS      = -Wl,--as-needed -L$(OPENBLAS) -Wl,-rpath,$(OPENBLAS) -ldnnl -lopenblas -ljansson -lxxhash -lm -lpthread

VARIANTS  = release asan clang
CC_release = gcc
CC_asan    = gcc
CC_clang   = clang
CC_tsan    = gcc

SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
OPT_release  = -O2 -g1
OPT_asan     = -O1 -g1 $(SANITIZE)
OPT_clang    = -O2 -g1
OPT_tsan     = -O1 -g1 -fsanitize=thread
KOPT_release = -O3 -g1 -DNDEBUG
KOPT_asan    = -O1 -g1 $(SANITIZE)
KOPT_clang   = -O3 -g1 -DNDEBUG
KOPT_tsan    = $(OPT_tsan)
LINK_asan    = $(SANITIZE)
LINK_tsan    = -fsanitize=thread

# Each file of kernels/cpu is built once per level of the instruction set, with
# -DISA=v2 ...; the kernel table picks one at run time.
ISAS = v2 v3 v4

# ---- sources ----

COMPILER = base ir frontend planner codegen cli
EXECUTOR = kernels runtime $(filter-out kernels/cpu kernels/cuda runtime/cuda runtime/mpi,$(patsubst %/,%,$(wildcard kernels/*/ runtime/*/)))

sources  = $(sort $(foreach d,$(1),$(wildcard $(d)/*.c)))
MAINS    = cli/pplan.c cli/prun.c
LEXERS   = $(patsubst %.l,build/gen/%.yy.c,$(wildcard frontend/*.l))
PARSERS  = $(patsubst %.y,build/gen/%.tab.c,$(wildcard frontend/*.y))
GEN_H    = $(LEXERS:.c=.h) $(PARSERS:.c=.h)
COMPILER_C = $(filter-out $(MAINS),$(call sources,$(COMPILER))) $(LEXERS) $(PARSERS)
EXECUTOR_C = $(call sources,$(EXECUTOR))
KERNEL_C   = $(call sources,kernels/cpu)
UNIT_C     = $(sort $(filter-out tests/cudaemu/%,$(wildcard tests/*/test_*.c)))
FUZZ_C     = $(sort $(wildcard tests/fuzz/fuzz_*.c))
HELPER_C   = $(filter-out $(UNIT_C) $(FUZZ_C),$(call sources,tests/unit tests/ops tests/fuzz)) bench/accuracy/csv.c bench/accuracy/stats.c
TOOL_C     = $(call sources,tests/tools)
BENCH_C    = $(filter-out bench/peer_mpi.c,$(call sources,bench bench/text))
ACCURACY_C = $(call sources,bench/accuracy)
PROGRAMS   = $(patsubst cli/%.c,%,$(wildcard $(MAINS)))

# Use all cores unless the caller chose a number of jobs.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-builtin-rules

# `make demo` and the like install what is missing before anything is built.
SETUP = $(if $(filter demo check check-all update bench predicted accuracy fit,$(MAKECMDGOALS)),setup)

# V=1 shows whole commands, otherwise a word and a file.
ifdef V
say =
else
say = @printf '  %-5s %s\n' '$(1)' '$(2)';
endif

.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:
.PHONY: all setup demo check check-all update bench predicted accuracy fit pages install uninstall deb lint clean help FORCE $(VARIANTS)

all: release cuda bench-tools

# ---- plug-ins ----

MPI_FOUND := $(if $(filter no,$(WITH_MPI)),absent: WITH_MPI=no,$(or $(shell runtime/mpi/probe.sh build/mpi),absent: runtime/mpi/probe.sh))
PLUGINS   := $(if $(filter found:%,$(MPI_FOUND)),libprun_mpi.so)
ifneq ($(filter absent:%,$(MPI_FOUND)),)
$(if $(filter yes,$(WITH_MPI)),$(error WITH_MPI=yes, but $(MPI_FOUND)))
endif

# ---- generated lexer and parser ----

build/gen/%.tab.c build/gen/%.tab.h &: %.y | $(SETUP)
	@mkdir -p $(@D)
	$(call say,bison,$<)bison -Wall -Wno-yacc -Werror -o build/gen/$*.tab.c --defines=build/gen/$*.tab.h $<

build/gen/%.yy.c build/gen/%.yy.h &: %.l | $(SETUP)
	@mkdir -p $(@D)
	$(call say,flex,$<)flex -o build/gen/$*.yy.c --header-file=build/gen/$*.yy.h $<

# ---- rules of one variant ----

# Plans must be the same bytes under every compiler: no contraction where they are made.
EXACT = -ffp-contract=off
flags_planner := $(EXACT)
flags_codegen := $(EXACT)
flags_ir      := $(EXACT)
flags_cli      = -DPPLAN_VERSION='"$(VERSION)"'
flags_runtime  = $(flags_cli)

define variant_rules
COMPILER_$(1) = $$(addprefix build/$(1)/obj/,$$(patsubst build/gen/%,%,$$(COMPILER_C:.c=.o)))
KERNEL_$(1)   = $$(foreach i,$$(ISAS),$$(patsubst %.c,build/$(1)/obj/%.$$(i).o,$$(KERNEL_C)))
EXECUTOR_$(1) = $$(patsubst %.c,build/$(1)/obj/%.o,$$(EXECUTOR_C)) $$(KERNEL_$(1))
COMPILE_$(1)  = $$(CC_$(1)) -std=c11 $$(CPPFLAGS) -MMD -MP

$(1): $$(addprefix build/$(1)/,$$(PROGRAMS) libcompiler.a libexecutor.a $$(PLUGINS))

build/$(1)/obj/%.o: %.c Makefile | $$(GEN_H) $$(SETUP)
	@mkdir -p $$(@D)
	$$(call say,cc,$$@)$$(COMPILE_$(1)) $$(STRICT) $$(OPT_$(1)) $$(flags_$$(firstword $$(subst /, ,$$<))) -c $$< -o $$@

build/$(1)/obj/kernels/%.o: kernels/%.c Makefile | $$(SETUP)
	@mkdir -p $$(@D)
	$$(call say,cc,$$@)$$(COMPILE_$(1)) $$(STRICT) $$(KOPT_$(1)) -c $$< -o $$@

build/$(1)/obj/%.o: build/gen/%.c Makefile | $$(GEN_H) $$(SETUP)
	@mkdir -p $$(@D)
	$$(call say,cc,$$@)$$(COMPILE_$(1)) $$(GENERATED_WARN) $$(OPT_$(1)) -c $$< -o $$@

$$(patsubst %.c,build/$(1)/obj/%.o,$$(call sources,cli) runtime/plugin.c runtime/comm/tcp.c): VERSION

$$(foreach i,$$(ISAS),$$(eval $$(call isa_rule,$(1),$$(i))))

build/$(1)/libcompiler.a: $$(COMPILER_$(1))
	$$(call say,ar,$$@)mkdir -p $$(@D) && rm -f $$@ && ar rcsD $$@ $$^

build/$(1)/libexecutor.a: $$(EXECUTOR_$(1))
	$$(call say,ar,$$@)mkdir -p $$(@D) && rm -f $$@ && ar rcsD $$@ $$^

# pplan must never need a BLAS: it links the compiler, and of the kernels the list of their forms.  Plug-ins use functions of prun.
build/$(1)/pplan: build/$(1)/obj/cli/pplan.o build/$(1)/obj/kernels/forms.o build/$(1)/libcompiler.a
	$$(call say,link,$$@)$$(CC_$(1)) $$(LINK_$(1)) -o $$@ $$^ -ljansson -lm

# MPI's compiler under the names that Open MPI and MPICH give the one below it.
build/$(1)/libprun_mpi.so: runtime/mpi/mpi.c VERSION Makefile | $$(SETUP)
	@mkdir -p $$(@D)
	$$(call say,mpicc,$$@)OMPI_CC=$$(CC_$(1)) MPICH_CC=$$(CC_$(1)) mpicc -std=c11 $$(CPPFLAGS) $$(flags_cli) -MMD -MP -MF $$@.d $$(STRICT) $$(OPT_$(1)) -shared -fPIC -o $$@ $$<

build/$(1)/prun: build/$(1)/obj/cli/prun.o build/$(1)/libexecutor.a build/$(1)/libcompiler.a
	$$(call say,link,$$@)$$(CC_$(1)) $$(LINK_$(1)) -rdynamic -o $$@ $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(LIBS)
endef

define isa_rule
build/$(1)/obj/%.$(2).o: %.c Makefile | $$(SETUP)
	@mkdir -p $$(@D)
	$$(call say,cc,$$@)$$(COMPILE_$(1)) $$(STRICT) $$(KOPT_$(1)) -march=x86-64-$(2) -DISA=$(2) -c $$< -o $$@
endef

$(foreach v,$(VARIANTS) tsan,$(eval $(call variant_rules,$(v))))

# ---- test programs (asan) and helpers of the benchmarks (release) ----

TESTS = $(patsubst %.c,build/asan/%,$(UNIT_C) $(TOOL_C) $(FUZZ_C))
build/asan/libtests.a: $(patsubst %.c,build/asan/obj/%.o,$(HELPER_C))
	$(call say,ar,$@)mkdir -p $(@D) && rm -f $@ && ar rcsD $@ $^

build/asan/tests/%: build/asan/obj/tests/%.o build/asan/libtests.a build/asan/libexecutor.a build/asan/libcompiler.a
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC_asan) $(LINK_asan) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)

# Tests of communication alone, with the thread sanitizer: of small programs it sees more.
TSAN_C     = $(call sources,base runtime/comm) runtime/plugin.c runtime/stop.c $(addprefix kernels/,combine.c isa.c team.c) ir/dtype.c
TSAN_TESTS = $(addprefix build/tsan/tests/,unit/test_comm unit/test_comm_faults tools/comm_far)
build/tsan/tests/%: build/tsan/obj/tests/%.o $(patsubst %.c,build/tsan/obj/%.o,$(TSAN_C)) $(foreach i,$(ISAS),build/tsan/obj/kernels/cpu/combine.$(i).o) build/tsan/obj/tests/unit/comm_cases.o
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC_tsan) $(LINK_tsan) -o $@ $^ -lcmocka -lpthread

# Ranks that train, in other builds too: fast, and as threads that the sanitizer watches.
RANK_TESTS = test_layout_matrix test_courier
# Rows of bug reports, which run on a device too: fast is enough.
ROW_TESTS  = test_bug_layouts test_bug_experts
RANK_PROGRAMS = $(foreach v,release tsan,$(addprefix build/$(v)/tests/unit/,$(RANK_TESTS))) $(addprefix build/release/tests/unit/,$(ROW_TESTS))
define rank_test_rule
build/release/tests/unit/$(1) build/tsan/tests/unit/$(1): build/%/tests/unit/$(1): build/%/obj/tests/unit/$(1).o build/%/libexecutor.a build/%/libcompiler.a
	@mkdir -p $$(@D)
	$$(call say,link,$$@)$$(CC_$$*) $$(LINK_$$*) -rdynamic -o $$@ $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group -lcmocka $$(LIBS)
endef
$(foreach t,$(RANK_TESTS) $(ROW_TESTS),$(eval $(call rank_test_rule,$(t))))

# The emulator of CUDA for tests, and its own tests: C++, with NVIDIA's headers, without a GPU.  The sanitizer is told
# by the emulator what streams and ranks do, so only the programs are built for it.
EMU_CPP   = $(filter-out tests/cudaemu/test_%,$(sort $(wildcard tests/cudaemu/*.cpp)))
EMU_TESTS = $(patsubst tests/cudaemu/%,build/emu/%,$(basename $(sort $(wildcard $(addprefix tests/cudaemu/test_*,.c .cpp .cu)))))
EMU_FOUND = $(if $(filter no,$(WITH_EMU)),absent: WITH_EMU=no,$(or $(shell tests/cudaemu/headers.sh),absent: tests/cudaemu/headers.sh))
EMU_HEADERS := $(EMU_FOUND)
EMU_CXX   = g++ -std=c++17 $(patsubst found:%,%,$(EMU_HEADERS)) -MMD -MP -Wall -Wextra -Wshadow $(WERROR) -O2 -g1 -fPIC
emu_sanitize_test_races = -fsanitize=thread
ifneq ($(filter absent:%,$(EMU_HEADERS)),)
$(if $(filter yes,$(WITH_EMU)),$(error WITH_EMU=yes, but $(EMU_HEADERS)))
endif

# Tests are skipped for the reason that it holds.
build/emu/absent: FORCE
	@mkdir -p $(@D) && rm -f build/emu/test_* && echo '$(EMU_HEADERS)' >$@

build/emu/obj/%.o: tests/cudaemu/%.cpp Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,c++,$@)$(EMU_CXX) -I. $(emu_sanitize_$*) -c $< -o $@

build/emu/obj/%.o: tests/cudaemu/%.cu Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,c++,$@)$(EMU_CXX) $(emu_sanitize_$*) -x c++ -include tests/cudaemu/device.h -c $< -o $@

build/emu/obj/%.o: tests/cudaemu/%.c Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,cc,$@)$(EMU_CC) -DCUDAEMU -c $< -o $@

build/emu/obj/bench/gpu/%.o: bench/gpu/%.c Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,cc,$@)$(EMU_CC) -c $< -o $@

# The CUDA kernels for the emulator, with the rest of the executor from the release build.
CUDA_C  = $(sort $(wildcard kernels/cuda/*.c))
GPU_C   = $(sort $(wildcard runtime/cuda/*.c))
CUDA_CU = $(sort $(wildcard kernels/cuda/*.cu))
EMU_CC  = gcc -std=c11 $(CPPFLAGS) $(patsubst found:%,%,$(EMU_HEADERS)) -MMD -MP $(STRICT) -O2 -g1 -fPIC
build/emu/obj/kernels/cuda/%.o: kernels/cuda/%.c Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,cc,$@)$(EMU_CC) -DCUDAEMU -c $< -o $@

# C's headers name the members that they set, and `#pragma unroll` is nvcc's.  A load of 16 bytes at an address that is not
# aligned, which a GPU refuses, traps.
build/emu/obj/kernels/cuda/%.o: kernels/cuda/%.cu Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,c++,$@)$(EMU_CXX) -I. -fsanitize=alignment -fsanitize-undefined-trap-on-error -Wno-missing-field-initializers -Wno-unknown-pragmas -x c++ -include tests/cudaemu/device.h -c $< -o $@

build/emu/obj/runtime/cuda/%.o: runtime/cuda/%.c Makefile VERSION | $(SETUP)
	@mkdir -p $(@D)
	$(call say,cc,$@)$(EMU_CC) $(flags_runtime) -DEXECUTOR='"cudaemu"' -c $< -o $@

# What executes plans on the emulator, for tests: never installed.
build/emu/libprun_cudaemu.so: $(GPU_C:%.c=build/emu/obj/%.o) runtime/cuda/exports.map build/emu/libcuda.a build/emu/libcudaemu.a
	$(call say,link,$@)g++ -shared -Wl,--version-script=runtime/cuda/exports.map -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

build/emu/libcuda.a: $(patsubst %,build/emu/obj/%.o,$(basename $(CUDA_C) $(CUDA_CU)))
	$(call say,ar,$@)rm -f $@ && ar rcsD $@ $^

build/emu/test_ops: build/emu/obj/test_ops.o $(patsubst %.c,build/release/obj/%.o,$(call sources,tests/ops)) build/emu/libcuda.a \
                    build/release/libexecutor.a build/release/libcompiler.a build/emu/libcudaemu.a
	$(call say,link,$@)g++ -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

# What `make gpu-bench` runs beside prun and these tests, on the emulator.
GPU_BENCH_C = $(sort $(wildcard bench/gpu/*.c))
EMU_BENCHES = $(GPU_BENCH_C:bench/gpu/%.c=build/emu/gpu_%)
$(EMU_BENCHES): build/emu/gpu_%: build/emu/obj/bench/gpu/%.o build/emu/libcuda.a build/release/libexecutor.a build/release/libcompiler.a build/emu/libcudaemu.a
	$(call say,link,$@)g++ -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

# Ranks on the emulator, and the same with the thread sanitizer: in kernels and in what drives them, not in the emulator.
build/emu/test_rank: build/emu/obj/test_rank.o build/release/libexecutor.a build/release/libcompiler.a | build/emu/libprun_cudaemu.so
	$(call say,link,$@)gcc -rdynamic -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)

build/emu/tsan/obj/%.o: %.c Makefile VERSION | $(SETUP)
	@mkdir -p $(@D)
	$(call say,cc,$@)$(EMU_CC) $(flags_runtime) -DCUDAEMU -DEXECUTOR='"cudaemu"' -fsanitize=thread -c $< -o $@

build/emu/tsan/obj/%.o: %.cu Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,c++,$@)$(EMU_CXX) -I. -Wno-missing-field-initializers -Wno-unknown-pragmas -fsanitize=thread -x c++ -include tests/cudaemu/device.h -c $< -o $@

# By itself, so that what it calls can be told apart: tests/cudaemu/tsan.supp.
build/emu/tsan/libcudaemu.so: build/emu/libcudaemu.a
	@mkdir -p $(@D)
	$(call say,link,$@)g++ -shared -o $@ -Wl,--whole-archive $< -Wl,--no-whole-archive $(LIBS)

build/emu/tsan/libprun_cudaemu.so: $(addprefix build/emu/tsan/obj/,$(GPU_C:.c=.o) $(CUDA_C:.c=.o) $(CUDA_CU:.cu=.o)) runtime/cuda/exports.map build/emu/tsan/libcudaemu.so
	$(call say,link,$@)g++ -fsanitize=thread -shared -Wl,--version-script=runtime/cuda/exports.map -o $@ $(filter %.o,$^) -Lbuild/emu/tsan -lcudaemu -Wl,-rpath,'$$ORIGIN' $(LIBS)

build/emu/tsan/test_rank: build/emu/tsan/obj/tests/cudaemu/test_rank.o build/tsan/libexecutor.a build/tsan/libcompiler.a | build/emu/tsan/libprun_cudaemu.so
	$(call say,link,$@)gcc -fsanitize=thread -rdynamic -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)

build/emu/test_cudnn: build/emu/obj/kernels/cuda/cudnn.o

build/emu/libcudaemu.a: $(patsubst tests/cudaemu/%.cpp,build/emu/obj/%.o,$(EMU_CPP))
	$(call say,ar,$@)rm -f $@ && ar rcsD $@ $^

$(filter-out build/emu/test_ops build/emu/test_rank,$(EMU_TESTS)) build/emu/speed: build/emu/%: build/emu/obj/%.o build/emu/libcudaemu.a
	$(call say,link,$@)g++ $(emu_sanitize_$*) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)

# The plug-in for GPUs, beside the prun that is installed: code for CUDA_ARCHS, and for later GPUs that of the last as PTX.
CUDA_FOUND  := $(if $(filter no,$(WITH_CUDA)),absent: WITH_CUDA=no,$(shell runtime/cuda/probe.sh build/cuda))
CUDA_NVCC    = $(word 2,$(CUDA_FOUND))
CUDA_LIBS    = $(word 3,$(CUDA_FOUND))
CUDA_TARGETS = $(foreach n,$(CUDA_ARCHS),-gencode arch=compute_$(n),code=sm_$(n)) -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
CUDA_OBJECTS = $(addprefix build/cuda/obj/,$(GPU_C:.c=.o) $(CUDA_C:.c=.o) $(CUDA_CU:.cu=.o))
ifneq ($(filter absent:%,$(CUDA_FOUND)),)
$(if $(filter yes,$(WITH_CUDA)),$(error WITH_CUDA=yes, but $(CUDA_FOUND)))
endif

build/cuda/obj/%.o: %.c Makefile VERSION | $(SETUP)
	@mkdir -p $(@D)
	$(call say,cc,$@)$(EMU_CC) $(flags_runtime) -DEXECUTOR='"cuda"' -c $< -o $@

# Changes when the GPUs do for which kernels are compiled.
build/cuda/archs: FORCE
	@mkdir -p $(@D)
	@echo '$(CUDA_ARCHS)' | cmp -s - $@ || echo '$(CUDA_ARCHS)' >$@

# Beside an object lies what ptxas said of its kernels: their registers and spills, which tests/ptxas.sh judges.
build/cuda/obj/%.o: %.cu Makefile build/cuda/archs | $(SETUP)
	@mkdir -p $(@D)
	$(call say,nvcc,$@)$(CUDA_NVCC) -std=c++17 $(CPPFLAGS) $(patsubst found:%,%,$(EMU_HEADERS)) $(CUDA_TARGETS) -O3 -Werror all-warnings -Xptxas -v -Xcompiler -fPIC -MMD -MP -c $< -o $@ \
	    2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }

build/release/libprun_cuda.so: $(CUDA_OBJECTS) runtime/cuda/exports.map
	$(call say,link,$@)g++ -shared -Wl,--version-script=runtime/cuda/exports.map -o $@ $(filter %.o,$^) -L$(CUDA_LIBS) -Wl,-rpath,$(CUDA_LIBS) -lcudart -lcublasLt -lnccl

# The same sources as programs for a GPU.
CUDA_KERNELS = $(addprefix build/cuda/obj/,$(CUDA_C:.c=.o) $(CUDA_CU:.cu=.o))
CUDA_BENCHES = build/cuda/test_ops $(GPU_BENCH_C:bench/gpu/%.c=build/cuda/gpu_%)
build/cuda/test_ops: build/cuda/obj/tests/cudaemu/test_ops.o $(patsubst %.c,build/release/obj/%.o,$(call sources,tests/ops))
$(filter build/cuda/gpu_%,$(CUDA_BENCHES)): build/cuda/gpu_%: build/cuda/obj/bench/gpu/%.o
$(CUDA_BENCHES): $(CUDA_KERNELS) build/release/libexecutor.a build/release/libcompiler.a
	$(call say,link,$@)g++ -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -L$(CUDA_LIBS) -Wl,-rpath,$(CUDA_LIBS) -lcudart -lcublasLt -lnccl $(LIBS)

.PHONY: cuda gpu-bench gpu-bench-programs
# `make cuda` has said what is missing.
gpu-bench-programs: release cuda $(if $(filter absent:%,$(CUDA_FOUND)),,$(CUDA_BENCHES))
cuda: $(if $(filter absent:%,$(CUDA_FOUND)),,build/release/libprun_cuda.so)
	@$(if $(filter absent:%,$(CUDA_FOUND)),echo '  cuda  prun gets no plug-in for GPUs: $(CUDA_FOUND:absent:%=%)',:)

# What tests preload into the release build, to watch it or to make its calls fail.
PRELOADS = $(patsubst tests/preload/%.c,build/release/preload/%.so,$(wildcard tests/preload/*.c))
build/release/preload/%.so: tests/preload/%.c Makefile | $(SETUP)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC_release) -std=c11 $(CPPFLAGS) $(STRICT) $(OPT_release) -shared -fPIC -o $@ $<

# What asks cuDNN for plans, where it is; it needs nothing of CUDA to be built.
build/release/tests/slow/cudnn_plans: $(addprefix build/release/obj/,tests/slow/cudnn_plans.o kernels/cuda/cudnn.o kernels/cuda/sdpa_graph.o) build/release/libexecutor.a build/release/libcompiler.a
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC_release) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

BENCHES = $(patsubst %.c,build/release/%,$(BENCH_C))
build/release/bench/%: build/release/obj/bench/%.o build/release/libexecutor.a build/release/libcompiler.a
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC_release) -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

# The peer of the collectives needs MPI, which only `make bench` installs.
build/release/bench/peer_mpi: bench/peer_mpi.c bench/comm_loop.h Makefile | bench-setup
	@mkdir -p $(@D)
	$(call say,mpicc,$@)OMPI_CC=$(CC_release) mpicc -std=c11 $(CPPFLAGS) $(STRICT) $(OPT_release) -o $@ $<

# One program of its own, of the compiler alone; tests run the one with sanitizers.
define accuracy_rule
build/$(1)/accuracy: $$(patsubst %.c,build/$(1)/obj/%.o,$$(ACCURACY_C)) build/$(1)/libcompiler.a
	$$(call say,link,$$@)$$(CC_$(1)) $$(LINK_$(1)) -o $$@ $$^ -ljansson -lm
endef
$(foreach v,release asan,$(eval $(call accuracy_rule,$(v))))

.PHONY: bench-tools test-programs bench-setup
bench-tools: $(BENCHES)
.PHONY: emu
emu: $(if $(filter absent:%,$(EMU_HEADERS)),build/emu/absent,$(EMU_TESTS) $(EMU_BENCHES) build/emu/libprun_cudaemu.so build/emu/tsan/test_rank)
test-programs: all asan clang build/asan/accuracy $(TESTS) $(TSAN_TESTS) $(RANK_PROGRAMS) $(PRELOADS) build/release/tests/slow/cudnn_plans emu

-include $(shell find build -type f -name '*.d' 2>/dev/null)

# ---- what people type ----

setup:
	@.ci/setup $(PACKAGES)

demo: release bench-tools
	@bench/demo.sh

check: test-programs
	@tests/run.sh

check-all: test-programs
	@CHECK_ALL=1 tests/run.sh

update: test-programs
	@UPDATE=1 tests/run.sh golden/
	@UPDATE=1 tests/run.sh script/readme

bench: release bench-tools bench-setup build/release/bench/peer_mpi
	@bench/run.sh

# On a machine with a GPU: it builds what it needs itself, for that GPU alone.
gpu-bench: setup
	@bench/gpu.sh

# Predictions against what this machine does, for the plans of bench/predicted.txt.
predicted: release
	@.ci/setup python3
	@bench/predicted.py

# Predictions against published measurements: `make accuracy CSV=rows.csv ROWS=1` for rows of your own, each printed.
# `make fit` prints constants fitted to the open rows and what they predict of rows they have not seen; WRITE=1
# puts them into models/clusters and models/profiles.
CSV ?= $(addprefix bench/accuracy/rows/,published.csv published_megatron_ci.csv published_ultrascale_full.csv)
accuracy: build/release/accuracy
	@build/release/accuracy $(if $(ROWS),--rows) $(CSV)

fit: build/release/accuracy
	@build/release/accuracy --fit --cross $(if $(WRITE),--write) bench/accuracy/rows/published.csv
	@build/release/accuracy --memory bench/accuracy/rows/published.csv

# The peers that are measured: Open MPI, and PyTorch in a virtual environment below build/, with
# the C++ compiler without which torch.compile does not run.
bench-setup: setup
	@.ci/setup python3-venv python3-dev g++ openmpi-bin libopenmpi-dev
	@bench/setup_torch.sh build/venv

# Checkers that find more than the compilers' warnings, where they are installed.
lint:
	@command -v cppcheck >/dev/null || { echo "lint: cppcheck is not installed (apt-get install cppcheck)"; exit 1; }
	cppcheck --quiet --error-exitcode=1 --enable=warning,portability --inline-suppr \
	    -I. -D_GNU_SOURCE --suppress=missingIncludeSystem $(wildcard $(COMPILER) $(EXECUTOR) kernels/cpu)
	@command -v shellcheck >/dev/null || { echo "lint: shellcheck is not installed (apt-get install shellcheck)"; exit 1; }
	shellcheck -S warning -e SC2034,SC2086 .ci/run .ci/setup .ci/deb $(wildcard tests/*.sh bench/*.sh bench/text/*.sh)

# Manual pages and completions, made from the table of options by a program of their own.
build/release/pages: $(addprefix build/release/obj/,cli/pages/pages.o cli/pages/manual.o cli/bundled.o base/arena.o)
	$(call say,link,$@)$(CC_release) -o $@ $^

build/pages/%.1: cli/pages/%.1.in build/release/pages VERSION
	$(call say,man,$@)mkdir -p $(@D) && build/release/pages man $* $(VERSION) <$< >$@

# What users write, from the pages of docs/.
MANUALS = build/pages/pmodel.5 build/pages/pplan-rules.5
build/pages/pmodel.5: docs/language.md
build/pages/pplan-rules.5: docs/rules.md
$(MANUALS): build/release/pages VERSION
	$(call say,man,$@)mkdir -p $(@D) && build/release/pages manual $(basename $(@F)) $(VERSION) <$(filter docs/%,$^) >$@

# bash-completion loads a file of the program's name, zsh one that begins with '_'.
COMPLETIONS = $(foreach p,$(PROGRAMS),build/pages/bash/$(p) build/pages/zsh/_$(p) build/pages/fish/$(p).fish)
# A folder is newer than a file that was put there or taken away.
$(COMPLETIONS): build/release/pages $(shell find models -type d)
	$(call say,page,$@)mkdir -p $(@D) && build/release/pages $(notdir $(@D)) $(basename $(patsubst _%,%,$(@F))) models >$@

SHARE = $(DESTDIR)$(PREFIX)/share
# Where a program in bin/ looks for plug-ins; which of them are built depends on the machine.
PLUGIN_DIR = $(DESTDIR)$(PREFIX)/lib/prun
pages: $(PROGRAMS:%=build/pages/%.1) $(MANUALS) $(COMPLETIONS)

install: release cuda pages
	install -d $(DESTDIR)$(PREFIX)/bin $(addprefix $(SHARE)/,pplan man/man1 man/man5 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	install -m 755 $(addprefix build/release/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	@if [ -f build/release/libprun_cuda.so ]; then set -x; install -d $(DESTDIR)$(PREFIX)/lib/prun && install -m 755 build/release/libprun_cuda.so $(DESTDIR)$(PREFIX)/lib/prun; fi
	$(if $(PLUGINS),install -d $(PLUGIN_DIR) && install -m 644 $(addprefix build/release/,$(PLUGINS)) $(PLUGIN_DIR))
	install -m 644 $(PROGRAMS:%=build/pages/%.1) $(SHARE)/man/man1
	install -m 644 $(MANUALS) $(SHARE)/man/man5
	install -m 644 $(PROGRAMS:%=build/pages/bash/%) $(SHARE)/bash-completion/completions
	install -m 644 $(PROGRAMS:%=build/pages/zsh/_%) $(SHARE)/zsh/site-functions
	install -m 644 $(PROGRAMS:%=build/pages/fish/%.fish) $(SHARE)/fish/vendor_completions.d
	cp -R --no-preserve=ownership models $(SHARE)/pplan

uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(PROGRAMS)) $(PROGRAMS:%=$(SHARE)/man/man1/%.1) $(MANUALS:build/pages/%=$(SHARE)/man/man5/%) \
	    $(PROGRAMS:%=$(SHARE)/bash-completion/completions/%) $(PROGRAMS:%=$(SHARE)/zsh/site-functions/_%) \
	    $(PROGRAMS:%=$(SHARE)/fish/vendor_completions.d/%.fish)
	rm -rf $(SHARE)/pplan $(addprefix $(PLUGIN_DIR)/,libprun_cuda.so libprun_mpi.so)
	@for d in $(PLUGIN_DIR) $(DESTDIR)$(PREFIX)/bin $(addprefix $(SHARE)/,man/man1 man/man5 bash-completion/completions zsh/site-functions fish/vendor_completions.d); do \
	    [ ! -d $$d ] || rmdir -p --ignore-fail-on-non-empty $$d 2>/dev/null || true; done

# A Debian package of what `make install` lays out: build/pplan_VERSION_ARCHITECTURE.deb
deb: release cuda pages
	@rm -rf build/deb && mkdir -p build/deb
	@$(MAKE) --no-print-directory install PREFIX=/usr DESTDIR=build/deb >/dev/null
	@.ci/deb build/deb $(VERSION) build

clean:
	rm -rf build

help:
	@sed -n 's/^#: //p' Makefile

#: make            build pplan and prun (build/release)
#: make setup      install the Debian packages that are missing
#: make demo       set up, build, plan a small model and train it on real text
#: make check      set up, build with sanitizers, run the tests
#: make check-all  the same with the slow tests
#: make update     rewrite the golden files (read the diff before you commit it)
#: make bench      measure against PyTorch and Open MPI
#: make gpu-bench  on a machine with a GPU: kernels and losses against the cpu, speed, PyTorch
#: make predicted  predict 67 plans of four ranks on this machine, and measure them
#: make accuracy   predict published training runs: CSV=FILE, ROWS=1 for each row
#: make fit        refit the constants of GPUs and runtimes to them: WRITE=1
#: make cuda       the plug-in for GPUs: WITH_CUDA=auto|yes|no CUDA_ARCHS='80 90 100'
#: make WITH_MPI=auto|yes|no   with the plug-in for ranks that MPI starts
#: make emu        the emulator of CUDA and its tests: WITH_EMU=auto|yes|no
#: make install    PREFIX=/usr/local DESTDIR=: programs, models, manual pages, completions
#: make uninstall  remove all that again
#: make deb        a Debian package, in build/
#: make lint       cppcheck and shellcheck
