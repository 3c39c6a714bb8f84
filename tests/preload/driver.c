/* A libcuda.so.1 for compilers of kernels where no GPU is: what they compiled can be loaded, and nothing else is there. */
#define LOADS(F) F(cuLibraryLoadData) F(cuLibraryLoadFromFile) F(cuLibraryGetKernel) F(cuModuleLoadData) F(cuModuleLoadDataEx) \
    F(cuModuleLoadFatBinary) F(cuModuleGetFunction) F(cuKernelGetFunction)
#define SETS(F)  F(cuLibraryUnload) F(cuModuleUnload) F(cuKernelSetAttribute) F(cuFuncSetAttribute)
#define LACKS(F)                                                                                                              \
    F(cuInit) F(cuDriverGetVersion) F(cuGetErrorString) F(cuGetErrorName) F(cuDeviceGet) F(cuDeviceGetCount)                  \
    F(cuDeviceGetAttribute) F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxReset) F(cuDevicePrimaryCtxRelease)               \
    F(cuCtxPushCurrent) F(cuCtxPopCurrent) F(cuCtxGetLimit) F(cuCtxGetCurrent) F(cuCtxGetDevice) F(cuStreamGetCtx)            \
    F(cuStreamSynchronize) F(cuLaunchKernel) F(cuLaunchKernelEx) F(cuLaunchCooperativeKernel) F(cuLinkCreate)                 \
    F(cuLinkCreate_v2) F(cuLinkAddData) F(cuLinkAddData_v2) F(cuLinkAddFile_v2) F(cuLinkComplete) F(cuLinkDestroy)            \
    F(cuOccupancyMaxPotentialClusterSize) F(cuOccupancyMaxActiveBlocksPerMultiprocessor) F(cuTensorMapEncodeTiled)            \
    F(cuMemcpyDtoH_v2) F(cuKernelGetAttribute) F(cuFuncGetAttribute) F(cuModuleGetGlobal_v2)

enum { SUCCESS = 0, NO_DEVICE = 100 };
static int something;
#define LOADING(name) int name(void **to); int name(void **to) { *to = &something; return SUCCESS; }
#define SETTING(name) int name(void); int name(void) { return SUCCESS; }
#define LACKING(name) int name(void); int name(void) { return NO_DEVICE; }
LOADS(LOADING)
SETS(SETTING)
LACKS(LACKING)
