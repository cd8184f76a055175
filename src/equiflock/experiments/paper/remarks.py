"""Remarks for the ledger: why statements do not hold in full, according to the results of the paper profile."""

REMARKS = {
    "T1": "ETDAGNN is still learning at epoch 80: its IVV is below the final one of TDAGNN by epoch 120, of TDAGNN-TF "
    "by 160. All the rest holds.",
    "T2": "IVVs are apart; in IMAN the best sum-aggregation controller, TDAGNN-TF, ends near TDAGNN-TF-mean.",
    "T4": "The two meet between epochs 160 and 200, not at 320: TDAGNN's own IMAN rises meanwhile.",
    "T5": "ETDAGNN needs until 160: its IQR then overlaps in all seeds, at 120 in two.",
    "T6": "Larger in every seed, but by 0.001 to 0.008 only.",
    "T7": "True against both sum-aggregation controllers; TDAGNN-TF-mean learns faster still.",
    "T9": "They stay as near to each other, but ETDAGNN's IMAN falls from 3.99 at epoch 80 to 3.81, while "
    "TDAGNN-TF-mean's rises by 0.23.",
    "F2": "At N = 50 TDAGNN-TF-mean is lower than ETDAGNN, at N = 100 level with TDAGNN-TF. All the rest holds.",
    "F3": "TDAGNN-TF-mean is below it for most of the run, ETDAGNN only in the first tenth of a second and from 1.4 s "
    "on, TDAGNN-TF hardly ever.",
    "F4": "It ends a third above the expert, in every seed above.",
    "F5": "Differences are of hundredths, but ETDAGNN's norm is the smallest at every size, and at N = 400 both "
    "mean-aggregation controllers' are below the others'.",
    "F6": "All pairs but one: TDAGNN-TF-mean and ETDAGNN are 0.054 apart at N = 50.",
    "L2": "All pairs but one: TDAGNN is 0.08 above TDAGNN-TF-mean.",
    "O2": "TDAGNN-TF-mean falls short from 12 sides on, TDAGNN at 12 and 24, TDAGNN-TF at 24; ETDAGNN never does.",
    "O3": "TDAGNN-TF and ETDAGNN fail in at most 4% of flights, TDAGNN and TDAGNN-TF-mean in 10 to 20%.",
    "O4": "ETDAGNN is level with both sum-aggregation controllers at 48 sides, 6 points ahead of them at 96, and "
    "ahead of TDAGNN-TF-mean at both; its clear lead is at 24 sides. If followers observed all obstacle agents within "
    "R, it would lead by 24 points and more at 48, but then the sum-aggregation controllers fail near 90%, against O2.",
    "G6": "The gap is as small as chance makes the difference of two samples, some 1e-5, and rises and falls in the "
    "first ten epochs. From epoch 20 on both rise, with a correlation of 0.88 and more in every data set for all but "
    "TDAGNN-TF-mean.",
    "O5": "There are none at all: every failure is a disconnection.",
}
