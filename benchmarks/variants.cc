// What the kernel's choices give: each of them beside the one that is in use, on one core, in turns. See scripts/bench-variants.
//
// Calls are short (some images of one model), so that on a machine that does other things too the best of many is one that nothing
// came between. Each is made twice in a turn: the first finds the caches as another left them.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "../native/run.h"

using namespace tiltwalk;

// plan.cc is compiled twice: as it is, and as variant::build with its constants put up for choice.
namespace tiltwalk {
extern int variant_pass, variant_room;
extern bool variant_fused;
std::string build_variant(const int32_t* code, int64_t size, const Blocking& blocking, bool keep, Plan* plan);
}  // namespace tiltwalk

static const int32_t kRow = 6;
static std::vector<int32_t> code(std::vector<int32_t> shape, std::vector<std::vector<int32_t>> layers) {
  std::vector<int32_t> out = {1, shape.size() == 1 ? 1 : 3};
  shape.resize(3, 1);
  out.insert(out.end(), shape.begin(), shape.end());
  out.push_back((int32_t)layers.size());
  for (auto& layer : layers) layer.resize(kRow), out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Case {
  std::string name;
  Plan plan;
  Request request;
  double best = 1e30;
};

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 200;
  const std::map<std::string, std::vector<int32_t>> networks = {
      {"LeNet", code({1, 28, 28}, {{kConv, 5, 1, 6, 1, 0}, {kActivation, kRelu}, {kMaxPool, 2}, {kConv, 5, 6, 16, 1, 0}, {kActivation, kRelu}, {kMaxPool, 2}, {kFlatten}, {kDense, 256, 120}, {kActivation, kRelu}, {kDense, 120, 84}, {kActivation, kRelu}, {kDense, 84, 10}})},
      {"MLP", code({784}, {{kDense, 784, 64}, {kActivation, kRelu}, {kDense, 64, 10}})},
      {"3x3", code({3, 32, 32}, {{kConv, 3, 3, 16, 1, 1}, {kActivation, kRelu}, {kMaxPool, 2}, {kConv, 3, 16, 32, 1, 1}, {kActivation, kRelu}, {kMaxPool, 2}, {kConv, 3, 32, 64, 1, 1}, {kActivation, kRelu}, {kMaxPool, 2}, {kFlatten}, {kDense, 1024, 10}})},
  };
  std::mt19937 source(1);
  std::normal_distribution<float> normal;
  for (const auto& [name, program] : networks) {
    const Kernel* const best = kernel_for("");
    std::vector<std::unique_ptr<Case>> cases;
    const int64_t samples = name == "3x3" ? 16 : 128, most = 1024;
    Plan first;
    build(program.data(), (int64_t)program.size(), best->blocking, false, &first);
    std::vector<float> theta(first.parameters), data(most * first.features), losses(1), gradient(first.parameters);
    std::vector<int32_t> labels(most);
    for (float& x : theta) x = 0.1f * normal(source);
    for (float& x : data) x = normal(source);
    auto add = [&](const std::string& what, const Kernel* kernel, const Blocking& blocking, int64_t count, bool keep) {
      auto made = std::make_unique<Case>();
      made->name = what;
      const std::string wrong = build_variant(program.data(), (int64_t)program.size(), blocking, keep, &made->plan);
      if (!wrong.empty()) fprintf(stderr, "%s: %s\n", what.c_str(), wrong.c_str()), exit(1);
      Request& r = made->request;
      r.plan = &made->plan, r.kernel = kernel, r.models = 1, r.samples = count, r.thetas = theta.data(), r.data = data.data();
      r.labels = labels.data(), r.losses = losses.data(), r.gradient = keep ? gradient.data() : nullptr;
      cases.push_back(std::move(made));
    };
    add("as it is", best, best->blocking, samples, false);
    for (int pass : {1, 4, 8}) {
      variant_pass = pass;
      add("dense layers on " + std::to_string(pass * kBlock) + " samples at a time, not 32", best, best->blocking, samples, false);
    }
    variant_pass = 2;
    if (name != "MLP") {
      variant_fused = false;
      add("pooling as a step of its own", best, best->blocking, samples, false);
      variant_fused = true;
      for (int group : {3, 2}) {
        Blocking b = best->blocking;
        if (b.pool_group <= group) continue;
        b.pool_group = group;
        add("pooled tiles of 4 places x " + std::to_string(group) + " filters", best, b, samples, false);
      }
    }
    for (int k = 0; k < best->blocking.shapes; k++) {  // a dense layer takes tiles of 2 places
      Blocking b = best->blocking;
      b.shape[1] = b.shape[k], b.shapes = 1 + (k > 0);
      add("no tiles but of " + std::to_string(b.shape[0].tile) + " and " + std::to_string(b.shape[1].tile) + " places", best, b, samples, false);
    }
    for (int group : {12, 8, 4, 2, 1}) {
      Blocking b = best->blocking;
      for (auto& shape : b.shape) shape.group = std::min(shape.group, group);
      if (group >= b.shape[0].group) add("at most " + std::to_string(group) + " outputs at a time", best, b, samples, false);
    }
    for (int64_t count : {(int64_t)16, most})
      add(std::to_string(count) + " samples a call, not " + std::to_string(samples), best, best->blocking, count, false);
    for (const char* target : {"avx512", "avx2", "plain"})
      if (const Kernel* kernel = kernel_for(target); kernel && kernel != best) add(std::string("target ") + target, kernel, kernel->blocking, samples, false);
    add("gradient as it is", best, best->blocking, samples, true);
    for (const auto& shape : best->blocking.outer) {
      Blocking b = best->blocking;
      b.outer[0] = b.outer[1] = b.outer[2] = shape;
      add("gradient, products of " + std::to_string(shape.tile) + " taps x " + std::to_string(shape.group) + " filters alone", best, b, samples, true);
    }
    const int usual = variant_room;
    for (int room : {usual / 4, usual / 2, usual * 2, usual * 4}) {
      variant_room = room;
      add("gradient, values of a pass in " + std::to_string(room * 4 / 1024) + " KiB, not " + std::to_string(usual * 4 / 1024), best, best->blocking, samples, true);
    }
    variant_room = usual;

    const double began = now();
    for (int round = 0; round < rounds || now() - began < 1; round++) {
      for (auto& c : cases)
        for (int again = 0; again < 2; again++) {
          const double start = now();
          run(c->request, 1, {});
          c->best = std::min(c->best, now() - start);
        }
    }
    const double base = cases[0]->best / (double)samples;
    printf("%s: %.2f us an image, %.0f GFLOP/s on one core\n", name.c_str(), base * 1e6, first.flops / base / 1e9);
    for (auto& c : cases) {
      const double each = c->best / (double)c->request.samples;
      printf("  %-62s %6.2f us %6.2f times\n", c->name.c_str(), each * 1e6, each / base);
    }
    fflush(stdout);
  }
}
