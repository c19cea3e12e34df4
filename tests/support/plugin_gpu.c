/* A plug-in of TensorFlow that lists one device of type GPU, in the memory of the host, without any kernel.
 *
 * TensorFlow then knows a GPU that no driver does, and runs the operations on the CPU, as it may place them. Build it
 * against the headers in TensorFlow's own package.
 */
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

#define BYTES (1LL << 28)

struct SP_Stream_st { int unused; };
struct SP_Event_st { int unused; };
struct SP_Timer_st { int unused; };

static struct SP_Stream_st one_stream;
static struct SP_Event_st one_event;
static struct SP_Timer_st one_timer;

static void take(const SP_Device *device, uint64_t size, int64_t space, SP_DeviceMemoryBase *memory) {
    (void)device, (void)space;
    memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
    memory->opaque = aligned_alloc(64, (size + 63) / 64 * 64);
    memory->size = size;
}

static void give(const SP_Device *device, SP_DeviceMemoryBase *memory) {
    (void)device;
    free(memory->opaque);
    memory->opaque = NULL;
    memory->size = 0;
}

static void *take_host(const SP_Device *device, uint64_t size) {
    (void)device;
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void give_host(const SP_Device *device, void *memory) {
    (void)device;
    free(memory);
}

static TF_Bool no_stats(const SP_Device *device, SP_AllocatorStats *stats) {
    (void)device, (void)stats;
    return 0;
}

static TF_Bool usage(const SP_Device *device, int64_t *left, int64_t *total) {
    (void)device;
    *left = *total = BYTES;
    return 1;
}

static void make_stream(const SP_Device *device, SP_Stream *stream, TF_Status *status) {
    (void)device, (void)status;
    *stream = &one_stream;
}

static void end_stream(const SP_Device *device, SP_Stream stream) { (void)device, (void)stream; }

static void depend(const SP_Device *device, SP_Stream one, SP_Stream other, TF_Status *status) {
    (void)device, (void)one, (void)other, (void)status;
}

static void stream_status(const SP_Device *device, SP_Stream stream, TF_Status *status) {
    (void)device, (void)stream, (void)status;
}

static void make_event(const SP_Device *device, SP_Event *event, TF_Status *status) {
    (void)device, (void)status;
    *event = &one_event;
}

static void end_event(const SP_Device *device, SP_Event event) { (void)device, (void)event; }

static SE_EventStatus event_status(const SP_Device *device, SP_Event event) {
    (void)device, (void)event;
    return SE_EVENT_COMPLETE;
}

static void record(const SP_Device *device, SP_Stream stream, SP_Event event, TF_Status *status) {
    (void)device, (void)stream, (void)event, (void)status;
}

static void make_timer(const SP_Device *device, SP_Timer *timer, TF_Status *status) {
    (void)device, (void)status;
    *timer = &one_timer;
}

static void end_timer(const SP_Device *device, SP_Timer timer) { (void)device, (void)timer; }

static void time_it(const SP_Device *device, SP_Stream stream, SP_Timer timer, TF_Status *status) {
    (void)device, (void)stream, (void)timer, (void)status;
}

static uint64_t nanoseconds(SP_Timer timer) {
    (void)timer;
    return 1;
}

static void to_host(const SP_Device *device, SP_Stream stream, void *to, const SP_DeviceMemoryBase *from,
                    uint64_t size, TF_Status *status) {
    (void)device, (void)stream, (void)status;
    memcpy(to, from->opaque, size);
}

static void to_device(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to, const void *from,
                      uint64_t size, TF_Status *status) {
    (void)device, (void)stream, (void)status;
    memcpy(to->opaque, from, size);
}

static void inside(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *to,
                   const SP_DeviceMemoryBase *from, uint64_t size, TF_Status *status) {
    (void)device, (void)stream, (void)status;
    memcpy(to->opaque, from->opaque, size);
}

static void to_host_now(const SP_Device *device, void *to, const SP_DeviceMemoryBase *from, uint64_t size,
                        TF_Status *status) {
    to_host(device, NULL, to, from, size, status);
}

static void to_device_now(const SP_Device *device, SP_DeviceMemoryBase *to, const void *from, uint64_t size,
                          TF_Status *status) {
    to_device(device, NULL, to, from, size, status);
}

static void inside_now(const SP_Device *device, SP_DeviceMemoryBase *to, const SP_DeviceMemoryBase *from,
                       uint64_t size, TF_Status *status) {
    inside(device, NULL, to, from, size, status);
}

static void wait_event(const SP_Device *device, SP_Event event, TF_Status *status) {
    (void)device, (void)event, (void)status;
}

static void wait_all(const SP_Device *device, TF_Status *status) { (void)device, (void)status; }

static void zero(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *at, uint64_t size,
                 TF_Status *status) {
    (void)device, (void)stream, (void)status;
    memset(at->opaque, 0, size);
}

static void fill(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *at, uint8_t byte, uint64_t size,
                 TF_Status *status) {
    (void)device, (void)stream, (void)status;
    memset(at->opaque, byte, size);
}

static void fill32(const SP_Device *device, SP_Stream stream, SP_DeviceMemoryBase *at, uint32_t word, uint64_t size,
                   TF_Status *status) {
    (void)device, (void)stream, (void)status;
    for (uint64_t place = 0; place < size / 4; place++) ((uint32_t *)at->opaque)[place] = word;
}

static TF_Bool call_back(const SP_Device *device, SP_Stream stream, SE_StatusCallbackFn call, void *argument) {
    (void)device, (void)stream;
    call(argument, NULL);
    return 1;
}

static void count(const SP_Platform *platform, int *devices, TF_Status *status) {
    (void)platform, (void)status;
    *devices = 1;
}

static void make_device(const SP_Platform *platform, SE_CreateDeviceParams *params, TF_Status *status) {
    (void)platform, (void)status;
    params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    params->device->hardware_name = "ACME 1";
    params->device->device_vendor = "ACME";
    params->device->pci_bus_id = "0000:00:00.0";
}

static void end_device(const SP_Platform *platform, SP_Device *device) { (void)platform, (void)device; }

static void make_device_fns(const SP_Platform *platform, SE_CreateDeviceFnsParams *params, TF_Status *status) {
    (void)platform, (void)status;
    params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
}

static void end_device_fns(const SP_Platform *platform, SP_DeviceFns *functions) { (void)platform, (void)functions; }

static void make_executor(const SP_Platform *platform, SE_CreateStreamExecutorParams *params, TF_Status *status) {
    (void)platform, (void)status;
    *params->stream_executor = (SP_StreamExecutor){
        .struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE,
        .allocate = take, .deallocate = give,
        .host_memory_allocate = take_host, .host_memory_deallocate = give_host,
        .get_allocator_stats = no_stats, .device_memory_usage = usage,
        .create_stream = make_stream, .destroy_stream = end_stream,
        .create_stream_dependency = depend, .get_stream_status = stream_status,
        .create_event = make_event, .destroy_event = end_event,
        .get_event_status = event_status, .record_event = record, .wait_for_event = record,
        .create_timer = make_timer, .destroy_timer = end_timer, .start_timer = time_it, .stop_timer = time_it,
        .memcpy_dtoh = to_host, .memcpy_htod = to_device, .memcpy_dtod = inside,
        .sync_memcpy_dtoh = to_host_now, .sync_memcpy_htod = to_device_now, .sync_memcpy_dtod = inside_now,
        .block_host_for_event = wait_event, .block_host_until_done = stream_status,
        .synchronize_all_activity = wait_all,
        .mem_zero = zero, .memset = fill, .memset32 = fill32, .host_callback = call_back,
    };
}

static void end_executor(const SP_Platform *platform, SP_StreamExecutor *executor) { (void)platform, (void)executor; }

static void make_timers(const SP_Platform *platform, SP_TimerFns *timers, TF_Status *status) {
    (void)platform, (void)status;
    timers->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
    timers->nanoseconds = nanoseconds;
}

static void end_timers(const SP_Platform *platform, SP_TimerFns *timers) { (void)platform, (void)timers; }
static void end_platform(SP_Platform *platform) { (void)platform; }
static void end_platform_fns(SP_PlatformFns *functions) { (void)functions; }

void SE_InitPlugin(SE_PlatformRegistrationParams *params, TF_Status *status) {
    (void)status;
    params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
    params->platform->name = "ACME";
    params->platform->type = "GPU";
    params->platform->use_bfc_allocator = 1;
    *params->platform_fns = (SP_PlatformFns){
        .struct_size = SP_PLATFORM_FNS_STRUCT_SIZE,
        .get_device_count = count,
        .create_device = make_device, .destroy_device = end_device,
        .create_device_fns = make_device_fns, .destroy_device_fns = end_device_fns,
        .create_stream_executor = make_executor, .destroy_stream_executor = end_executor,
        .create_timer_fns = make_timers, .destroy_timer_fns = end_timers,
    };
    params->destroy_platform = end_platform;
    params->destroy_platform_fns = end_platform_fns;
}

void TF_InitKernel(void) {}
