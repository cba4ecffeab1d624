// Programs for E2B's templates call Python by the name of python.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withSandbox } from './lib.mjs'

test('python is python3', () => withSandbox({}, async (sandbox) => {
  const { stdout } = await sandbox.commands.run('python -c "import sys; print(sys.version_info.major)"; command -v python; readlink "$(command -v python)"')
  assert.equal(stdout, '3\n/usr/bin/python\npython3\n')
  assert.equal((await sandbox.commands.run('readlink -f /usr/bin/python')).stdout, (await sandbox.commands.run('readlink -f /usr/bin/python3')).stdout)
}))
