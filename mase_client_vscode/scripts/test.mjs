// Runs the tests that need no editor: node scripts/test.mjs [NAME...], e.g. `graph` for tests/graph*.test.ts, `client` for the client package
import { spawnSync } from 'node:child_process';
import { globSync, rmSync } from 'node:fs';
import * as esbuild from 'esbuild';

const names = process.argv.slice(2);
const wanted = (file) => names.length === 0 || names.some((name) => file.includes(name));
const entryPoints = globSync('{tests,client/tests}/*.test.ts').filter(wanted);
const outdir = `dist/tests-${process.pid}`;

await esbuild.build({ entryPoints, outdir, bundle: true, platform: 'node', format: 'esm', sourcemap: 'inline', outExtension: { '.js': '.mjs' } });
const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-timeout=120000', `${outdir}/**/*.mjs`], { stdio: 'inherit' });
rmSync(outdir, { recursive: true, force: true });
process.exitCode = status ?? 1;
