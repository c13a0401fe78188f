// Prefix store: a view of a store in which every key stands under a prefix.
#pragma once

#include <string>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

/// Joins as PyTorch's PrefixStore does: prefix + "/" + key. Lifetime: it does not own
/// the store below, which must outlive it. Errors: those of the store below, which name
/// the keys as it has them.
///
///     mw::tcp_store shared(rt, "node1:29500");
///     mw::prefix_store store("job17", shared);
///     co_await store.set("ready", "yes");  // the key "job17/ready" of the other
class prefix_store final : public store {
 public:
  prefix_store(std::string prefix, store& under)
      : prefix_(std::move(prefix) + "/"), under_(under) {}
  ~prefix_store() override { end_users(); }

  [[nodiscard]] std::string address() const override { return under_.address(); }
  [[nodiscard]] std::string trouble() const override { return under_.trouble(); }
  task<store_reply> perform(store_request request) override {
    if (request.operation == store_operation::keys) return own_keys(std::move(request));
    for (std::string& key : request.keys) key.insert(0, prefix_);
    return under_.perform(std::move(request));
  }

 private:
  /// Needs nothing of this object once it has begun, as `perform` demands.
  task<store_reply> own_keys(store_request request) {
    if (request.keys.empty()) request.keys.emplace_back();
    request.keys.front().insert(0, prefix_);
    return without(under_.perform(std::move(request)), prefix_);
  }
  static task<store_reply> without(task<store_reply> listing, std::string prefix) {
    store_reply reply = co_await std::move(listing);
    for (std::string& key : reply.values) key.erase(0, prefix.size());
    co_return reply;
  }

  std::string prefix_;
  store& under_;
};

}  // namespace manyworlds::inline v0
