// Commands: how each question is asked on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "launcher.hpp"
#include "program.hpp"
#include "questions.hpp"

namespace mwbench {

// Messages and collectives.
void add_p2p(CLI::App& app, common_options& common, p2p_options& o);
void add_beside(CLI::App& app, const common_options& common, beside_options& o);
void add_pairs(CLI::App& app, const common_options& common, pairs_options& o);
void add_uring(CLI::App& app, const common_options& common, uring_options& o);
void add_worlds(CLI::App& app, common_options& common, worlds_options& o);
void add_collectives(CLI::App& app, common_options& common, collectives_options& o);

// What worlds go through, and what they cost.
void add_session(CLI::App& app, const common_options& common, session_options& o);
void add_fail(CLI::App& app, const common_options& common, fail_options& o);
void add_shrink(CLI::App& app, const common_options& common, shrink_options& o);
void add_form(CLI::App& app, const common_options& common, form_options& o);
void add_store(CLI::App& app, const common_options& common, store_options& o);
void add_idle(CLI::App& app, const common_options& common, idle_options& o);
void add_cancel(CLI::App& app, const common_options& common, cancel_options& o);
void add_await(CLI::App& app, const common_options& common, await_options& o);
void add_process(CLI::App& app, const common_options& common, process_options& o);
void add_rendezvous(CLI::App& app, const common_options& common, rendezvous_options& o);
void add_memory(CLI::App& app, const common_options& common, memory_options& o);
void add_scale(CLI::App& app, common_options& common, scale_options& o);

// What was written already.
void add_draw(CLI::App& app, std::vector<std::string>& files);

// --- what they share

/// No more than a message can have.
inline const CLI::Validator size_in_bytes =
    CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 46).description("BYTES");

inline void add_plot(CLI::App& sub, common_options& common) {
  sub.add_option("--plot", common.plot, "also draws curves")->type_name("FILE.svg");
}

}  // namespace mwbench
