// Binds the verilated module `bench` to the driver. Its six vectors are wider than 64 bits, so all are arrays of words.
#include "Vbench.h"
#include "driver.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

namespace {
class Bench final : public Design {
 public:
  Bench(int argc, char** argv) {
    context_.commandArgs(argc, argv);
    context_.randReset(2);
#if VM_TRACE
    context_.traceEverOn(true);
#endif
    bench_ = std::make_unique<Vbench>(&context_);
    in_data = bench_->in_data.data();
    in_valid = bench_->in_valid.data();
    in_ready = bench_->in_ready.data();
    out_data = bench_->out_data.data();
    out_valid = bench_->out_valid.data();
    out_ready = bench_->out_ready.data();
  }
  ~Bench() override {
    bench_->final();
#if VM_TRACE
    wave_.close();
#endif
  }
  void eval() override { bench_->eval(); }
  void set_clock(bool high) override { bench_->clk = high; }
  void set_reset(bool high) override { bench_->rst = high; }
#if VM_TRACE
  bool open_wave(const std::string& file) override {
    bench_->trace(&wave_, 99);
    wave_.open(file.c_str());
    return wave_.isOpen();
  }
  void dump(uint64_t time) override { wave_.dump(time); }
#endif

 private:
  VerilatedContext context_;
  std::unique_ptr<Vbench> bench_;
#if VM_TRACE
  VerilatedVcdC wave_;
#endif
};
}  // namespace

std::unique_ptr<Design> make_design(int argc, char** argv) { return std::make_unique<Bench>(argc, argv); }
