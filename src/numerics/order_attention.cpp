// Attention of the backend `order:…`.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "order_ops.h"
#include "order_storage.h"

namespace kvdiv {
namespace {

constexpr auto kTile = static_cast<std::int64_t>(kTileColumns);

struct Shape {
  std::int64_t B, H, G, T, S, D;
  std::int64_t R() const { return H / G; }
};

/// A [rows, columns] matrix at `in`, element (r, c) at r·row_step + c·column_step, as tiles [⌈columns/16⌉, rows, 16].
template <class S>
std::vector<Wide<S>> tiles_of(const S* in, std::int64_t rows, std::int64_t columns, std::int64_t row_step,
                              std::int64_t column_step) {
  const std::int64_t n_tiles = (columns + kTile - 1) / kTile;
  std::vector<Wide<S>> out(static_cast<std::size_t>(n_tiles * rows * kTile));
  for (std::int64_t c = 0; c < columns; ++c) {
    Wide<S>* column = out.data() + (c / kTile) * rows * kTile + c % kTile;
    for (std::int64_t r = 0; r < rows; ++r)
      column[r * kTile] = static_cast<Wide<S>>(in[r * row_step + c * column_step]);
  }
  return out;
}

/// Rows x [n_rows, n_terms] times tiles of `tile_rows` rows, from row `first` on → out [n_rows, columns].
template <class S>
void multiply_rows(const std::vector<Wide<S>>& x, std::int64_t n_rows, const std::vector<Wide<S>>& tiles,
                   std::int64_t tile_rows, std::int64_t first, std::int64_t columns, const ReductionSpec& spec,
                   S* out) {
  const auto rows = static_cast<std::size_t>(n_rows), n_terms = x.size() / rows;
  std::vector<Wide<S>> sums(rows * kTileColumns);
  for (std::int64_t c = 0; c < columns; c += kTile) {
    ordered_tile({x.data(), tiles.data() + c * tile_rows + first * kTile, sums.data(), rows, n_terms, n_terms}, spec);
    for (std::int64_t r = 0; r < n_rows; ++r)
      narrow(sums.data() + r * kTile, static_cast<std::size_t>(std::min(kTile, columns - c)), out + r * columns + c);
  }
}

/// The keys that a query sees, in ascending order.
std::vector<std::int64_t> visible_keys(const at::Tensor& visible_TS, std::int64_t t, std::int64_t S) {
  std::vector<std::int64_t> out;
  const bool* row = visible_TS.defined() ? visible_TS.const_data_ptr<bool>() + t * S : nullptr;
  for (std::int64_t s = 0; s < S; ++s)
    if (row == nullptr || row[s]) out.push_back(s);
  return out;
}

/// [B,H,T,S]: q·k, rounded, times the scale, rounded.
template <class E>
void scores_of(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const Shape& n, double scale,
               const ReductionSpec& spec, at::Tensor& scores_BHTS) {
  E* out = scores_BHTS.mutable_data_ptr<E>();
  at::parallel_for(0, n.B * n.G, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t n_queries = n.R() * n.T;  // of a key/value head: they lie together
    std::vector<Wide<E>> queries(static_cast<std::size_t>(n_queries * n.D));
    for (std::int64_t bg = begin; bg < end; ++bg) {
      const auto keys = tiles_of<E>(k_BGSD.const_data_ptr<E>() + bg * n.S * n.D, n.D, n.S, 1, n.D);
      widen(q_BHTD.const_data_ptr<E>() + bg * n_queries * n.D, queries.size(), queries.data());
      E* const scores = out + bg * n_queries * n.S;
      multiply_rows<E>(queries, n_queries, keys, n.D, 0, n.S, spec, scores);
      for (std::int64_t i = 0; i < n_queries * n.S; ++i)
        scores[i] = static_cast<E>(static_cast<Wide<E>>(scores[i]) * static_cast<Wide<E>>(scale));
    }
  });
}

/// Softmax over the visible keys, rounded; hidden ones weigh 0.
template <class E>
void weights_of(const at::Tensor& scores_BHTS, const std::vector<std::vector<std::int64_t>>& visible, const Shape& n,
                const ReductionSpec& spec, at::Tensor& weights_BHTS) {
  std::vector<Wide<E>> row;
  for (std::int64_t r = 0; r < n.B * n.H * n.T; ++r) {
    const auto& keys = visible[static_cast<std::size_t>(r % n.T)];
    if (keys.empty()) continue;
    const E* scores = scores_BHTS.const_data_ptr<E>() + r * n.S;
    E* weights = weights_BHTS.mutable_data_ptr<E>() + r * n.S;
    row.clear();
    for (const std::int64_t s : keys) row.push_back(static_cast<Wide<E>>(scores[s]));
    const Wide<E> sum = exponentials<Wide<E>>(row, spec);
    for (std::size_t i = 0; i < keys.size(); ++i) weights[keys[i]] = static_cast<E>(row[i] / sum);
  }
}

/// Rows of tiles [tiles, S, 16] at the given keys: [tiles, keys, 16].
template <class W>
std::vector<W> gather(const std::vector<W>& tiles, std::int64_t S, const std::vector<std::int64_t>& keys) {
  std::vector<W> out;
  const std::int64_t n_tiles = static_cast<std::int64_t>(tiles.size()) / (S * kTile);
  out.reserve(static_cast<std::size_t>(n_tiles * kTile) * keys.size());
  for (std::int64_t i = 0; i < n_tiles; ++i)
    for (const std::int64_t s : keys) {
      const auto from = tiles.begin() + (i * S + s) * kTile;
      out.insert(out.end(), from, from + kTile);
    }
  return out;
}

/// [B,H,T,D]: weights·V over the visible keys.
template <class E>
void mix_of(const at::Tensor& weights_BHTS, const at::Tensor& v_BGSD,
            const std::vector<std::vector<std::int64_t>>& visible, const Shape& n, const ReductionSpec& spec,
            at::Tensor& mix_BHTD) {
  E* out = mix_BHTD.mutable_data_ptr<E>();
  at::parallel_for(0, n.B * n.G, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Wide<E>> weights;
    for (std::int64_t bg = begin; bg < end; ++bg) {
      const auto values = tiles_of<E>(v_BGSD.const_data_ptr<E>() + bg * n.S * n.D, n.S, n.D, n.D, 1);
      for (std::int64_t row = bg * n.R() * n.T; row < (bg + 1) * n.R() * n.T; ++row) {
        const auto& keys = visible[static_cast<std::size_t>(row % n.T)];
        weights.clear();
        for (const std::int64_t s : keys)
          weights.push_back(static_cast<Wide<E>>(weights_BHTS.const_data_ptr<E>()[row * n.S + s]));
        const auto n_keys = static_cast<std::int64_t>(keys.size());
        const bool is_run = keys.empty() || keys.back() - keys.front() == n_keys - 1;  // else a mask with gaps
        if (is_run)
          multiply_rows<E>(weights, 1, values, n.S, keys.empty() ? 0 : keys.front(), n.D, spec, out + row * n.D);
        else
          multiply_rows<E>(weights, 1, gather(values, n.S, keys), n_keys, 0, n.D, spec, out + row * n.D);
      }
    }
  });
}

}  // namespace

at::Tensor OrderOps::attention(const at::Tensor& q_BHTD, const at::Tensor& k_BGSD, const at::Tensor& v_BGSD,
                               const at::Tensor& visible_TS, const AttentionParams& params, TapPoint tap) const {
  const Shape n{q_BHTD.size(0), q_BHTD.size(1), k_BGSD.size(1), q_BHTD.size(2), k_BGSD.size(2), q_BHTD.size(3)};
  const ReductionSpec& spec = reductions_.of(n.T);
  const at::Tensor q = q_BHTD.contiguous(), k = k_BGSD.contiguous(), v = v_BGSD.contiguous();
  std::vector<std::vector<std::int64_t>> visible;
  const at::Tensor mask_TS = visible_TS.defined() ? visible_TS.contiguous() : visible_TS;
  for (std::int64_t t = 0; t < n.T; ++t) visible.push_back(visible_keys(mask_TS, t, n.S));

  at::Tensor scores = at::empty({n.B, n.H, n.T, n.S}, q.options());
  with_storage(q.scalar_type(), [&](auto e) { scores_of<decltype(e)>(q, k, n, params.scale, spec, scores); });
  scores = tap(Site::scores, scores);
  if (params.cap) scores = tap(Site::capped_scores, soft_cap(scores, *params.cap));
  scores = scores.contiguous();  // a tap may leave any layout
  at::Tensor weights = at::zeros(scores.sizes(), q.options());
  with_storage(q.scalar_type(), [&](auto e) { weights_of<decltype(e)>(scores, visible, n, spec, weights); });
  weights = tap(Site::weights, weights).contiguous();
  at::Tensor mix = at::empty(q.sizes(), q.options());
  with_storage(q.scalar_type(), [&](auto e) { mix_of<decltype(e)>(weights, v, visible, n, spec, mix); });
  return tap(Site::mix, mix).transpose(1, 2).contiguous().reshape({n.B, n.T, -1});
}

}  // namespace kvdiv
