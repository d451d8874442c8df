"""Covariances of an additive function with labels and pairs of labels, on the posteriors of a chain.

Let H(y) = sum_t h_t(y_t) + sum_t g_t(y_{t-1}, y_t). Its covariance with the feature counts of a labelling costs what
forward-backward costs: with the conditional probabilities f_t(y | y') = p(y_t | y_{t-1}, x) and
b_t(y' | y) = p(y_{t-1} | y_t, x), and a_t(y) = gamma_t(y) h_t(y) the mass that enters at a label,

    L_t(y)      = a_t(y) + sum_y' f_t(y | y') (L_{t-1}(y') + gamma_{t-1}(y') g_t(y', y))        (forward)
    R_{t-1}(y') = a_{t-1}(y') + sum_y b_t(y' | y) (R_t(y) + gamma_t(y) g_t(y', y))              (backward)

are gamma times the conditional means of what H has up to t, and from t on. Then E [H; y_t = y] = L_t + R_t - a_t, and

    E [H; y_{t-1} = y', y_t = y] = f_t(y | y') L_{t-1}(y') + b_t(y' | y) R_t(y) + P_t(y', y) g_t(y', y);

the covariance is that minus kappa = E H times gamma_t, or P_t. Masses are handed on and never divided by a gamma, so
that a may be given where h would overflow: the marginal loss has a_t = c_t at the right label, and its masses stay
within [0, sum c]. Who wants covariances alone takes the mean of h_t and g_t off at each position: then kappa is 0 and
nothing cancels over a long sequence.

In the scaled notation of `forward_backward`, with the weight of every sequence 1, f_t = E_t v_t / beta_{t-1} and
b_t = alpha_{t-1} E_t / (sum_y' alpha_{t-1} E_t), so a step hands L_{t-1} / beta_{t-1} on by E_t and R_t over that sum
back; each row lies within the range of its step, and the same kernels pass it on. What is left behind is

    sum over t of  (kappa alpha - L / beta)_{t-1} v_t  +  alpha_{t-1} (-R_t / sum)     times E_t, and  -alpha_{t-1} v_t
    times E_t g_t,

minus the covariance: two or three products of rows like the one of the ordinary gradient, gathered or scattered by
the same kernels. Cost: two passes more than forward-backward, O(T Y^2).
"""

from typing import NamedTuple

import numpy as np

from espalier.engine.chain.forward_backward import backward_batch, forward_batch
from espalier.engine.chain.logarithms import add_pairs, log_back, make_pair_step
from espalier.engine.chain.scores import pair_scores
from espalier.engine.lattice.recursions import log_sum
from espalier.engine.runtime.inner_loops import pass_four, pass_one, pass_sparse, put
from espalier.engine.runtime.jit import apart, kernel

ROOM = 2  # rows of a batch are so many times as wide as those of a gradient: more arrays share the cache


class MassRows(NamedTuple):
    """Scratch memory of one thread beside the `Rows` of a batch."""

    inverse: np.ndarray  # [rows, W], 1 / sum_y' alpha_{t-1} E_t; at the end -R_t over that sum
    left: np.ndarray  # [rows, W], L / beta; at the end kappa alpha - L / beta
    mass: np.ndarray  # [rows, W], a, to be filled; R on the way backward
    spare: np.ndarray  # [rows, W]
    level: np.ndarray  # [rows], kappa, to be filled
    gamma: np.ndarray  # [rows, W] where pairs have a function of their own, else [0, W]: gamma itself
    through: np.ndarray  # [rows, W] or [0, W], alpha_{t-1} passed by E_t g_t
    mean: np.ndarray  # [rows] or [0], of g_t


class Edges(NamedTuple):
    """E g of each set whose factor is dense, and its transpose [D, W, W]; none where only labels have a function."""

    dense: np.ndarray
    transposed: np.ndarray


def no_edges(width: int) -> Edges:
    return Edges(np.empty((0, width, width)), np.empty((0, width, width)))


@kernel
def make_mass_rows(rows, width, n_edges):
    also = rows if n_edges else 0
    return MassRows(
        np.zeros((rows, width)), np.zeros((rows, width)), np.zeros((rows, width)), np.zeros((rows, width)),
        np.zeros(rows), np.zeros((also, width)), np.zeros((also, width)), np.zeros(also),
    )  # fmt: skip


@kernel
def keep_inverse(schedule, b, n_labels, work, more):
    """Between `forward_batch` and `backward_batch`: alpha_t = e_t sum / c_t, and v still holds e."""
    alpha, v, scale, inverse = work.alpha, work.v, work.scale, more.inverse
    for r in range(schedule.batch_rows[b + 1] - schedule.batch_rows[b]):
        for y in range(n_labels):
            inverse[r, y] = v[r, y] / (scale[r] * alpha[r, y])


@kernel
def recursions(theta, layout, data, sets, factors, shared, schedule, b, work, more, log_z):
    """alpha, v and gamma of batch b, whose sequences must have the weight 1, and `inverse` beside them."""
    forward_batch(theta, layout, data, sets, factors, shared, schedule, b, work, log_z)
    keep_inverse(schedule, b, layout.n_labels, work, more)
    backward_batch(data.offsets, data.weights, factors, schedule, b, work, log_z)


@kernel
def leave_out(r, work, more):
    """A row of a sequence that goes to logarithms: it hands nothing on."""
    gamma, inverse, mass = work.gamma, more.inverse, more.mass
    more.level[r] = 0.0
    for y in range(gamma.shape[1]):
        gamma[r, y] = 1.0  # it is divided by
        inverse[r, y] = mass[r, y] = 0.0


@kernel
def _ahead(factors, dense, p, lo, hi, before, base, n_labels, source, target):
    """target[r] = source[the row before r] times the matrix of set p."""
    d = factors.slot[p]
    if d >= 0:
        whole = lo + (hi - lo) // 4 * 4
        for r in range(lo, whole, 4):
            q0, q1 = np.int64(before[base + r]), np.int64(before[base + r + 1])
            q2, q3 = np.int64(before[base + r + 2]), np.int64(before[base + r + 3])
            pass_four(dense, d, source, q0, q1, q2, q3, target, r, r + 1, r + 2, r + 3)
        for r in range(whole, hi):
            pass_one(dense, d, source, np.int64(before[base + r]), target, r)
    else:
        i_of, j_of, entry, first, last = factors.row, factors.column, factors.entry, factors.begin[p], factors.end[p]
        for r in range(lo, hi):
            pass_sparse(n_labels, first, last, i_of, j_of, entry, source, np.int64(before[base + r]), target, r)


@kernel
def _back(factors, transposed, p, lo, hi, before, base, n_labels, source, target):
    """target[the row before r] = source[r] times the transposed matrix of set p."""
    d = factors.slot[p]
    if d >= 0:
        whole = lo + (hi - lo) // 4 * 4
        for r in range(lo, whole, 4):
            q0, q1 = np.int64(before[base + r]), np.int64(before[base + r + 1])
            q2, q3 = np.int64(before[base + r + 2]), np.int64(before[base + r + 3])
            pass_four(transposed, d, source, r, r + 1, r + 2, r + 3, target, q0, q1, q2, q3)
        for r in range(whole, hi):
            pass_one(transposed, d, source, r, target, np.int64(before[base + r]))
    else:
        i_of, j_of, entry, first, last = factors.row, factors.column, factors.entry, factors.begin[p], factors.end[p]
        for r in range(lo, hi):
            pass_sparse(n_labels, first, last, j_of, i_of, entry, source, r, target, np.int64(before[base + r]))


@apart
def covariance_batch(factors, edges, schedule, b, work, more):
    """Minus the covariances of batch b, from alpha, v and gamma of weight 1, and `mass`, `level` and `inverse`.

    `work.gamma` becomes that of the labels; that of pairs is what the module's text leaves behind, `more.left` times
    v and alpha times `more.inverse`.
    """
    _pass_masses_ahead(factors, edges, schedule, b, work, more)
    alpha, left, level, n_labels = work.alpha, more.left, more.level, len(work.power)
    for r in range(schedule.batch_rows[b + 1] - schedule.batch_rows[b]):
        for y in range(n_labels):
            left[r, y] = level[r] * alpha[r, y] - left[r, y]
    _pass_masses_back(factors, edges, schedule, b, work, more)


@kernel
def _pass_masses_ahead(factors, edges, schedule, b, work, more):
    """L of all rows, as left = L / beta; gamma becomes kappa gamma - (L - a)."""
    begin, end, which = schedule.group_begin, schedule.group_end, schedule.group_set
    before, base, n_labels = schedule.before, schedule.batch_rows[b], len(work.power)
    alpha, v, gamma = work.alpha, work.v, work.gamma
    left, mass, spare, level = more.left, more.mass, more.spare, more.level
    kept, through, mean, with_edges = more.gamma, more.through, more.mean, len(edges.dense) > 0
    for g in range(schedule.batch_groups[b], schedule.batch_groups[b + 1]):
        lo, hi, p = begin[g], end[g], which[g]
        if p >= 0:
            _ahead(factors, factors.dense, p, lo, hi, before, base, n_labels, left, spare)
        else:
            for r in range(lo, hi):
                for y in range(n_labels):
                    spare[r, y] = 0.0
        if with_edges and p >= 0:
            _ahead(factors, edges.dense, p, lo, hi, before, base, n_labels, alpha, through)
        for r in range(lo, hi):
            if with_edges:
                total = 0.0
                for y in range(n_labels):
                    total += through[r, y] * v[r, y] if p >= 0 else 0.0
                    kept[r, y] = gamma[r, y]
                mean[r] = total
                for y in range(n_labels):  # the mean goes off in front of v: its part of gamma is mean / inverse
                    spare[r, y] += through[r, y] - total / more.inverse[r, y] if p >= 0 else 0.0
            for y in range(n_labels):
                more_here = v[r, y] * spare[r, y]
                left[r, y] = (mass[r, y] + more_here) * (alpha[r, y] / gamma[r, y])
                gamma[r, y] = level[r] * gamma[r, y] - more_here


@kernel
def _pass_masses_back(factors, edges, schedule, b, work, more):
    """R of all rows in `mass`; inverse becomes -R times itself, gamma minus the covariance of labels."""
    begin, end, which = schedule.group_begin, schedule.group_end, schedule.group_set
    before, base, n_labels = schedule.before, schedule.batch_rows[b], len(work.power)
    alpha, v, gamma = work.alpha, work.v, work.gamma
    left, mass, spare, inverse = more.left, more.mass, more.spare, more.inverse
    kept, through, mean, with_edges = more.gamma, more.through, more.mean, len(edges.dense) > 0
    for g in range(schedule.batch_groups[b + 1] - 1, schedule.batch_groups[b] - 1, -1):
        lo, hi, p = begin[g], end[g], which[g]
        for r in range(lo, hi):
            for y in range(n_labels):
                gamma[r, y] -= mass[r, y]
                inverse[r, y] *= -mass[r, y]
        if p < 0:
            continue
        _back(factors, factors.transposed, p, lo, hi, before, base, n_labels, inverse, spare)
        for r in range(lo, hi):
            q = np.int64(before[base + r])
            for y in range(n_labels):
                mass[q, y] -= alpha[q, y] * spare[q, y]
        if not with_edges:
            continue
        _back(factors, edges.transposed, p, lo, hi, before, base, n_labels, v, through)
        for r in range(lo, hi):
            q = np.int64(before[base + r])
            for y in range(n_labels):
                mass[q, y] += alpha[q, y] * through[q, y] - mean[r] * kept[q, y]
                left[q, y] += mean[r] * alpha[q, y]


@kernel
def store_batch(offsets, scales, schedule, b, log_z, work, more, left, v, gamma, alpha, right):
    """The rows that `covariance_batch` leaves, by position, times the scale of the sequence; v and right as they are.

    Zero in the sequences whose log_z is NaN.
    """
    sequences, row, width = schedule.sequences, schedule.row, v.shape[1]
    my_left, my_v, my_gamma, my_alpha, my_right = more.left, work.v, work.gamma, work.alpha, more.inverse
    for m in range(schedule.batch_sequences[b], schedule.batch_sequences[b + 1]):
        n = sequences[m]
        scale, there = scales[n], not np.isnan(log_z[n])
        for t in range(offsets[n], offsets[n + 1]):
            r = row[t]
            for y in range(width):
                left[t, y] = scale * my_left[r, y] if there else 0.0
                v[t, y] = my_v[r, y] if there else 0.0
                gamma[t, y] = scale * my_gamma[r, y] if there else 0.0
                alpha[t, y] = scale * my_alpha[r, y] if there else 0.0
                right[t, y] = my_right[r, y] if there else 0.0


# ---- by logarithms, for sequences with a step too wide for scaling


@kernel
def log_posteriors(theta, layout, sets, lo, hi, score, log_alpha, log_beta, log_gamma):
    """log_beta and log_gamma [L, Y] of one sequence, from score and log_alpha of `logarithms.log_forward`."""
    n_labels, step, current = layout.n_labels, make_pair_step(layout.n_labels), np.zeros(layout.n_labels)
    for t in range(hi - 1, lo - 1, -1):
        row = t - lo
        log_beta[row] = current
        for y in range(n_labels):
            log_gamma[row, y] = log_alpha[row, y] + current[y]
        log_gamma[row] -= log_sum(log_gamma[row])
        if t > lo:
            log_back(theta, layout, sets, sets.of_position[t], score, row, log_alpha, current, step)


@kernel
def _ways_in(log_alpha, row, matrix, terms, out):
    """out(y', y) = b_t(y' | y): the shares of log_alpha_{t-1}(y') + matrix(y', y) over y'."""
    n_labels = len(terms)
    for y in range(n_labels):
        for i in range(n_labels):
            terms[i] = log_alpha[row, i] + matrix[i, y]
        total = log_sum(terms)
        for i in range(n_labels):
            out[i, y] = np.exp(terms[i] - total)


@kernel
def log_covariance(
    theta, direction, layout, sets, lo, hi, scale, level, score, log_alpha, log_beta, gamma, mass, gradient
):
    """`covariance_batch` of one sequence; gamma [L, Y] becomes minus scale times the covariance of the labels.

    That of the pairs is added to `gradient`. g_t is the pair score by the weights `direction`, 0 where that is empty.
    The probabilities f_t and b_t are made anew at each step. Cost: 3 Y^2 exponentials a position.
    """
    n_labels, rows, with_edges = layout.n_labels, hi - lo, len(direction) > 0
    step, ways, terms = make_pair_step(n_labels), np.empty((n_labels, n_labels)), np.empty(n_labels)
    edge, mean, current = np.zeros(n_labels * n_labels), np.zeros(rows), np.empty(n_labels)
    behind = mass.copy()  # R
    for t in range(hi - 1, lo, -1):
        row, p = t - lo, sets.of_position[t]
        pair_scores(theta, layout, sets, p, step.scores)
        _ways_in(log_alpha, row - 1, step.matrix[0], terms, ways)
        if with_edges:
            pair_scores(direction, layout, sets, p, edge)
            for i in range(n_labels):
                for y in range(n_labels):
                    mean[row] += ways[i, y] * gamma[row, y] * edge[i * n_labels + y]
        for i in range(n_labels):
            for y in range(n_labels):
                enters = gamma[row, y] * (edge[i * n_labels + y] - mean[row])
                behind[row - 1, i] += ways[i, y] * (behind[row, y] + enters)
    ahead, following = mass[0].copy(), np.empty(n_labels)
    for t in range(lo, hi):
        row, p = t - lo, sets.of_position[t]
        if t > lo:
            put(log_beta[row], current)
            log_back(theta, layout, sets, p, score, row, log_alpha, current, step)
            _ways_in(log_alpha, row - 1, step.matrix[0], terms, ways)
            if with_edges:
                pair_scores(direction, layout, sets, p, edge)
            put(mass[row], following)
            for i in range(n_labels):
                for y in range(n_labels):
                    pair = step.conditional[i, y] * gamma[row - 1, i]
                    enters = pair * (edge[i * n_labels + y] - mean[row])
                    comes = step.conditional[i, y] * ahead[i] + enters
                    following[y] += comes
                    step.conditional[i, y] = scale * (level * pair - comes - ways[i, y] * behind[row, y])
            add_pairs(layout, sets, p, step.pairs, gradient)
            gamma_before = gamma[row - 1]
            for y in range(n_labels):
                gamma_before[y] = scale * (level * gamma_before[y] - ahead[y] - behind[row - 1, y] + mass[row - 1, y])
                ahead[y] = following[y]
    for y in range(n_labels):
        gamma[rows - 1, y] = scale * (
            level * gamma[rows - 1, y] - ahead[y] - behind[rows - 1, y] + mass[rows - 1, y]
        )
