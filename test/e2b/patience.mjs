// How much longer than on a quiet machine to wait for what has to happen: see package
// test/patience.
export const patience = Math.min(Math.max(Number(process.env.CARBOY_PATIENCE) || 1, 1), 6)
