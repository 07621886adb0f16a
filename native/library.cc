// What XLA calls: unpacks the buffers, finds or makes the plan, and runs the request on XLA's own threads.
#include <algorithm>
#include <map>
#include <mutex>

#include "run.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace tiltwalk {
namespace {

using Ints = ffi::Span<const int32_t>;

// Plans are small and few; they are made once and kept.
const Plan* plan_for(const Ints& code, const Kernel& kernel, bool keep, std::string* wrong) {
  static std::mutex mutex;
  static auto* plans = new std::map<std::vector<int32_t>, std::unique_ptr<Plan>>;
  std::vector<int32_t> key(code.begin(), code.end());
  key.push_back(kernel.blocking.lanes), key.push_back(keep);
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Plan>& plan = (*plans)[key];
  if (!plan) {
    auto made = std::make_unique<Plan>();
    *wrong = build(code.begin(), code.size(), kernel.blocking, keep, made.get());
    if (!wrong->empty()) {
      plans->erase(key);
      return nullptr;
    }
    plan = std::move(made);
  }
  return plan.get();
}

ffi::Error bad(const std::string& what) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, "tiltwalk kernel: " + what); }

const float* floats(const ffi::AnyBuffer& b) { return b.element_count() ? (const float*)b.untyped_data() : nullptr; }

// Operands: thetas (m, d); data (blocks, features, 16); labels (blocks, 16) or targets (blocks, outputs, 16); weights
// (blocks, 16) or nothing; ranges (1 or m, 2) or nothing; index (1 or m, n) or nothing. Results: losses (m,), or a value a
// sample (m, n), or outputs (m, n, outputs).
ffi::Error call(ffi::ThreadPool pool, ffi::AnyBuffer thetas, ffi::AnyBuffer data, ffi::AnyBuffer truth, ffi::AnyBuffer weights,
                ffi::AnyBuffer ranges, ffi::AnyBuffer index, ffi::Result<ffi::AnyBuffer> result, ffi::AnyBuffer* gradient, Ints program,
                int64_t kind, int64_t samples, std::string_view target) {
  Request r;
  r.kernel = kernel_for(std::string(target).c_str());
  if (!r.kernel) return bad("the target " + std::string(target) + " cannot run on this machine");
  std::string wrong;
  r.plan = plan_for(program, *r.kernel, gradient != nullptr, &wrong);
  if (!r.plan) return bad(wrong);
  if (kind < kCrossEntropy || kind > (gradient ? kSquaredError : kOutputs)) return bad("unknown kind of loss, or one without a gradient");
  r.kind = (int)kind, r.samples = samples;

  for (const ffi::AnyBuffer* b : {&thetas, &data, &weights})
    if (b->element_count() && b->element_type() != ffi::F32) return bad("parameters, data and weights must be float32");
  for (const ffi::AnyBuffer* b : {&ranges, &index})
    if (b->element_count() && b->element_type() != ffi::S32) return bad("ranges and indices must be int32");
  const auto shape = [](const ffi::AnyBuffer& b) { return b.dimensions(); };
  if (shape(thetas).size() != 2 || shape(thetas)[1] != r.plan->parameters) return bad("parameters must have shape (models, dim)");
  if (shape(data).size() != 3 || shape(data)[1] != r.plan->features || shape(data)[2] != kBlock) return bad("data must have shape (blocks, features, 16)");
  const int64_t blocks = shape(data)[0];
  if (samples < 1 || samples > blocks * kBlock) return bad("there must be between 1 and 16 samples a block");
  r.models = shape(thetas)[0], r.thetas = floats(thetas), r.data = floats(data);
  const int64_t truths = (int64_t)truth.element_count();
  if (kind == kCrossEntropy || kind == kZeroOne) {
    if (truth.element_type() != ffi::S32 || truths != blocks * kBlock) return bad("labels must be int32 of shape (blocks, 16)");
    r.labels = (const int32_t*)truth.untyped_data();
  } else if (kind == kSquaredError) {
    if (truth.element_type() != ffi::F32 || truths != blocks * kBlock * r.plan->outputs) return bad("targets must be float32 of shape (blocks, outputs, 16)");
    r.targets = floats(truth);
  }
  if (weights.element_count() && (int64_t)weights.element_count() != blocks * kBlock) return bad("weights must have shape (blocks, 16)");
  r.weights = floats(weights);
  for (const ffi::AnyBuffer* b : {&ranges, &index})
    if (b->element_count() && (shape(*b).size() != 2 || (shape(*b)[0] != 1 && shape(*b)[0] != r.models)))
      return bad("ranges and indices must have one row, or one a model");
  if (ranges.element_count()) {
    if (shape(ranges)[1] != 2) return bad("ranges must have shape (rows, 2)");
    r.ranges = (const int32_t*)ranges.untyped_data(), r.range_rows = shape(ranges)[0];
  }
  if (index.element_count()) r.index = (const int32_t*)index.untyped_data(), r.index_rows = shape(index)[0], r.index_size = shape(index)[1];

  if (result->element_type() != ffi::F32) return bad("results are float32");
  const auto out = result->dimensions();
  if (out.size() < 1 || out[0] != r.models) return bad("a result must have a row a model");
  float* const to = (float*)result->untyped_data();
  if (kind == kOutputs) {
    if (out.size() != 3 || out[2] != r.plan->outputs) return bad("outputs must have shape (models, samples, outputs)");
    r.per_sample = to, r.listed = out[1];
  } else if (out.size() == 2) {
    r.per_sample = to, r.listed = out[1];
  } else if (out.size() == 1) {
    r.losses = to;
  } else {
    return bad("losses must have shape (models,) or (models, samples)");
  }
  if (gradient) {
    if (out.size() != 1 || gradient->element_type() != ffi::F32 || gradient->element_count() != thetas.element_count())
      return bad("a gradient has the shape of the parameters");
    r.gradient = (float*)gradient->untyped_data();
  }
  if (r.models == 0) return ffi::Error::Success();
  run(r, pool.num_threads(), [&pool](int64_t others, const std::shared_ptr<std::function<void()>>& work) {
    for (int64_t k = 0; k < others; k++) pool.Schedule([work] { (*work)(); });
  });
  return ffi::Error::Success();
}

ffi::Error evaluate(ffi::ThreadPool pool, ffi::AnyBuffer thetas, ffi::AnyBuffer data, ffi::AnyBuffer truth, ffi::AnyBuffer weights,
                    ffi::AnyBuffer ranges, ffi::AnyBuffer index, ffi::Result<ffi::AnyBuffer> result, Ints program, int64_t kind,
                    int64_t samples, std::string_view target) {
  return call(pool, thetas, data, truth, weights, ranges, index, result, nullptr, program, kind, samples, target);
}

ffi::Error differentiate(ffi::ThreadPool pool, ffi::AnyBuffer thetas, ffi::AnyBuffer data, ffi::AnyBuffer truth, ffi::AnyBuffer weights,
                         ffi::AnyBuffer ranges, ffi::AnyBuffer index, ffi::Result<ffi::AnyBuffer> result, ffi::Result<ffi::AnyBuffer> gradient,
                         Ints program, int64_t kind, int64_t samples, std::string_view target) {
  return call(pool, thetas, data, truth, weights, ranges, index, result, &*gradient, program, kind, samples, target);
}

}  // namespace
}  // namespace tiltwalk

#if defined(_MSC_VER)
#define TILTWALK_EXPORT extern "C" __declspec(dllexport)
#else
#define TILTWALK_EXPORT extern "C" __attribute__((visibility("default")))
#endif

TILTWALK_EXPORT const char* tiltwalk_target(const char* name) {
  const tiltwalk::Kernel* kernel = tiltwalk::kernel_for(name);
  return kernel ? kernel->name : nullptr;
}

// Why a program cannot run, or an empty string; `room` characters at most.
TILTWALK_EXPORT void tiltwalk_check(const int32_t* code, int64_t size, char* text, int64_t room) {
  tiltwalk::Plan plan;
  const std::string wrong = tiltwalk::build(code, size, tiltwalk::kernel_plain.blocking, false, &plan);
  if (room < 1) return;
  const size_t n = std::min(wrong.size(), (size_t)room - 1);
  std::copy(wrong.begin(), wrong.begin() + n, text);
  text[n] = 0;
}

// A handler with the operands of `call`, and the results that follow.
#define TILTWALK_BIND(results)                 \
  ffi::Ffi::Bind()                             \
      .Ctx<ffi::ThreadPool>()                  \
      .Arg<ffi::AnyBuffer>()                   \
      .Arg<ffi::AnyBuffer>()                   \
      .Arg<ffi::AnyBuffer>()                   \
      .Arg<ffi::AnyBuffer>()                   \
      .Arg<ffi::AnyBuffer>()                   \
      .Arg<ffi::AnyBuffer>()                   \
      results                                  \
      .Attr<tiltwalk::Ints>("program")         \
      .Attr<int64_t>("kind")                   \
      .Attr<int64_t>("samples")                \
      .Attr<std::string_view>("target")

TILTWALK_EXPORT XLA_FFI_Error* tiltwalk_evaluate(XLA_FFI_CallFrame* frame);
TILTWALK_EXPORT XLA_FFI_Error* tiltwalk_differentiate(XLA_FFI_CallFrame* frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(tiltwalk_evaluate, tiltwalk::evaluate, TILTWALK_BIND(.Ret<ffi::AnyBuffer>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(tiltwalk_differentiate, tiltwalk::differentiate, TILTWALK_BIND(.Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>()));
