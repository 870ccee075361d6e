// The simulated device: the CPU backend, offered as a GPU that refuses what its rules say.
//
// Some backends refuse operations that others accept; the HIP backend, say, TOP_K over rows wider
// than 1024. A scheduler that asks (supports_op) puts such an operation elsewhere. Over RPC nobody
// asks, and the device is told to compute what it refused. This one then dies as the HIP backend
// does. With it the whole class of faults runs on a machine with no GPU.
//
// A rule is a line of a file: operator, dimension, limit, message. The dimension (ne0 to ne3) is that
// of the operator's first source: of TOP_K and ARGSORT ne0 is the row that is sorted. SIMDEV_RULES
// names the file: `hip` (the default) is rules/hip.rules; a value with a slash is a path.
//
// An out-of-tree module: compile it against ggml/include and ggml/src/ggml-backend-impl.h of any build
// from b9951 to b11434, and have GGML_BACKEND_PATH point at it. The interfaces differ between those
// builds, so that their fields are set by name and all others are left at zero.

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#ifndef SIMDEV_RULES_DIR
#define SIMDEV_RULES_DIR "/opt/simdev/rules"
#endif

namespace {

const char * const NAME        = "SIM0";
const char * const DESCRIPTION = "simulated device: the CPU backend with limits";

// --- rules -------------------------------------------------------------------------------------

struct rule {
    ggml_op     op;
    int         dimension;
    int64_t     limit;
    std::string message;
};

[[noreturn]] void stop(const std::string & where, const std::string & what) {
    std::fprintf(stderr, "simdev: %s: %s\n", where.c_str(), what.c_str());
    std::exit(1);
}

ggml_op op_of(const std::string & name, const std::string & where) {
    for (int op = 0; op < GGML_OP_COUNT; op++) {
        if (name == ggml_op_name(static_cast<ggml_op>(op))) {
            return static_cast<ggml_op>(op);
        }
    }
    stop(where, "unknown operator '" + name + "'; they are named as ggml prints them, TOP_K say");
}

rule parse(const std::string & line, const std::string & where) {
    std::istringstream words(line);
    std::string        op, dimension, limit, message;
    words >> op >> dimension >> limit;
    std::getline(words >> std::ws, message);
    if (message.empty()) {
        stop(where, "a rule is: operator dimension limit message");
    }
    if (dimension.size() != 3 || dimension.compare(0, 2, "ne") != 0 || dimension[2] < '0' ||
        dimension[2] > '3') {
        stop(where, "unknown dimension '" + dimension + "'; allowed: ne0, ne1, ne2, ne3");
    }
    if (limit.empty() || limit.size() > 18 ||
        limit.find_first_not_of("0123456789") != std::string::npos) {
        stop(where, "the limit must be a whole number, not '" + limit + "'");
    }
    return { op_of(op, where), dimension[2] - '0', std::stoll(limit), message };
}

std::vector<rule> load_rules() {
    const char *      chosen = std::getenv("SIMDEV_RULES");
    const std::string name   = chosen ? chosen : "hip";
    const bool        is_path = name.find('/') != std::string::npos;
    const std::string path = is_path ? name : std::string(SIMDEV_RULES_DIR) + "/" + name + ".rules";

    std::ifstream file(path);
    if (!file) {
        stop("SIMDEV_RULES", "cannot read " + path);
    }
    std::vector<rule> rules;
    std::string       line;
    for (int number = 1; std::getline(file, line); number++) {
        if (line.find_first_not_of(" \t\r") != std::string::npos && line[0] != '#') {
            rules.push_back(parse(line, path + ":" + std::to_string(number)));
        }
    }
    std::fprintf(stderr, "simdev: %s, %s: %s, %zu rule(s)\n", NAME, DESCRIPTION, path.c_str(),
                 rules.size());
    for (const rule & r : rules) {
        std::fprintf(stderr, "simdev: %s: ne%d of its source at most %lld\n", ggml_op_name(r.op),
                     r.dimension, static_cast<long long>(r.limit));
    }
    return rules;
}

const std::vector<rule> & rules() {
    static const std::vector<rule> loaded = load_rules();
    return loaded;
}

const rule * refusal(const ggml_tensor * op) {
    for (const rule & r : rules()) {
        if (op->op == r.op && op->src[0] && op->src[0]->ne[r.dimension] > r.limit) {
            return &r;
        }
    }
    return nullptr;
}

// --- what does the work: the CPU backend -------------------------------------------------------

ggml_backend_dev_t cpu() {
    static ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device) {
        stop(NAME, "this process has no CPU backend to compute with");
    }
    return device;
}

ggml_backend_buffer_type_t cpu_buffer_type() {
    return ggml_backend_dev_buffer_type(cpu());
}

// --- memory: the host's, and yet not host memory, so that all that a GPU needs copied is copied ----

ggml_backend_buffer_t inner(ggml_backend_buffer_t buffer) {
    return static_cast<ggml_backend_buffer_t>(buffer->context);
}

char * at(const ggml_tensor * tensor, size_t offset) {
    return static_cast<char *>(tensor->data) + offset;
}

void buffer_free(ggml_backend_buffer_t buffer) {
    ggml_backend_buffer_free(inner(buffer));
}

void * buffer_base(ggml_backend_buffer_t buffer) {
    return ggml_backend_buffer_get_base(inner(buffer));
}

void buffer_memset(ggml_backend_buffer_t, ggml_tensor * tensor, uint8_t value, size_t offset,
                   size_t size) {
    std::memset(at(tensor, offset), value, size);
}

void buffer_set(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset,
                size_t size) {
    std::memcpy(at(tensor, offset), data, size);
}

void buffer_get(ggml_backend_buffer_t, const ggml_tensor * tensor, void * data, size_t offset,
                size_t size) {
    std::memcpy(data, at(tensor, offset), size);
}

bool buffer_copy(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    if (src->buffer->buft != buffer->buft && !ggml_backend_buffer_is_host(src->buffer)) {
        return false;
    }
    std::memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    std::memset(buffer_base(buffer), value, buffer->size);
}

const char * type_name(ggml_backend_buffer_type_t) {
    return NAME;
}

size_t type_alignment(ggml_backend_buffer_type_t) {
    return ggml_backend_buft_get_alignment(cpu_buffer_type());
}

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t memory = ggml_backend_buft_alloc_buffer(cpu_buffer_type(), size);
    if (!memory) {
        return nullptr;
    }
    ggml_backend_buffer_i face = {};
    face.free_buffer           = buffer_free;
    face.get_base              = buffer_base;
    face.memset_tensor         = buffer_memset;
    face.set_tensor            = buffer_set;
    face.get_tensor            = buffer_get;
    face.cpy_tensor            = buffer_copy;
    face.clear                 = buffer_clear;
    return ggml_backend_buffer_init(type, face, memory, size);
}

ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t device) {
    static ggml_backend_buffer_type type = [device] {
        ggml_backend_buffer_type made = {};
        made.iface.get_name           = type_name;
        made.iface.alloc_buffer       = type_alloc;
        made.iface.get_alignment      = type_alignment;
        made.device                   = device;
        return made;
    }();
    return &type;
}

// --- computing ---------------------------------------------------------------------------------

ggml_backend_t worker(ggml_backend_t backend) {
    return static_cast<ggml_backend_t>(backend->context);
}

const char * backend_name(ggml_backend_t) {
    return NAME;
}

void backend_free(ggml_backend_t backend) {
    ggml_backend_free(worker(backend));
    delete backend;
}

ggml_status backend_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (const rule * r = refusal(node)) {
            std::fprintf(stderr, "simdev: %s failed\n", ggml_op_name(node->op));
            GGML_ABORT("simulated device error: %s (ne%d = %lld, limit %lld)\n", r->message.c_str(),
                       r->dimension, static_cast<long long>(node->src[0]->ne[r->dimension]),
                       static_cast<long long>(r->limit));
        }
    }
    return ggml_backend_graph_compute(worker(backend), graph);
}

void set_n_threads(ggml_backend_t backend, int threads) {
    auto * set = reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(cpu()), "ggml_backend_set_n_threads"));
    if (set) {
        set(worker(backend), threads);
    }
}

// --- the device --------------------------------------------------------------------------------

const char * device_name(ggml_backend_dev_t) {
    return NAME;
}

const char * device_description(ggml_backend_dev_t) {
    return DESCRIPTION;
}

void device_memory(ggml_backend_dev_t, size_t * free, size_t * total) {
    ggml_backend_dev_memory(cpu(), free, total);
}

enum ggml_backend_dev_type device_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void device_props(ggml_backend_dev_t device, ggml_backend_dev_props * props) {
    *props             = {};
    props->name        = NAME;
    props->description = DESCRIPTION;
    props->type        = device_type(device);
    device_memory(device, &props->memory_free, &props->memory_total);
}

ggml_backend_t device_init(ggml_backend_dev_t device, const char * params) {
    static uint8_t id[16]         = { 's', 'i', 'm', 'd', 'e', 'v', 0x2b, 0x91, 0x0c, 0x5e };
    auto *         backend        = new ggml_backend();
    backend->guid                 = &id;
    backend->iface.get_name       = backend_name;
    backend->iface.free           = backend_free;
    backend->iface.graph_compute  = backend_compute;
    backend->device               = device;
    backend->context              = ggml_backend_dev_init(cpu(), params);
    return backend;
}

bool device_supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    return !refusal(op) && ggml_backend_dev_supports_op(cpu(), op);
}

bool device_supports_type(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
    return type == buffer_type(device);
}

const char * registry_name(ggml_backend_reg_t) {
    return "SIM";
}

size_t registry_count(ggml_backend_reg_t) {
    return 1;
}

ggml_backend_dev_t registry_device(ggml_backend_reg_t registry, size_t) {
    static ggml_backend_device device = [registry] {
        ggml_backend_device made   = {};
        made.iface.get_name        = device_name;
        made.iface.get_description = device_description;
        made.iface.get_memory      = device_memory;
        made.iface.get_type        = device_type;
        made.iface.get_props       = device_props;
        made.iface.init_backend    = device_init;
        made.iface.get_buffer_type = buffer_type;
        made.iface.supports_op     = device_supports_op;
        made.iface.supports_buft   = device_supports_type;
        made.reg                   = registry;
        return made;
    }();
    return &device;
}

void * registry_function(ggml_backend_reg_t, const char * name) {
    if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) {
        return reinterpret_cast<void *>(set_n_threads);
    }
    return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    static ggml_backend_reg registry = [] {
        ggml_backend_reg made       = {};
        made.api_version            = GGML_BACKEND_API_VERSION;
        made.iface.get_name         = registry_name;
        made.iface.get_device_count = registry_count;
        made.iface.get_device       = registry_device;
        made.iface.get_proc_address = registry_function;
        return made;
    }();
    rules();
    return &registry;
}
