/** What the extension asks the server about hardware. */
import { PassApi } from '../passes/api';
import { Check } from '../passes/inputs';
import { Build, BuildForm, Counterpart, Emission, Hardware, PassTarget, Simulation } from '../protocol';
import { Server } from '../server';

export class VerilogApi {
  readonly passes: PassApi;

  constructor(private readonly server: Server) {
    this.passes = new PassApi(server);
  }

  known({ path, model }: PassTarget): Promise<Hardware> {
    return this.passes.request('mase/verilog', { path, model });
  }

  form({ path, model }: PassTarget): Promise<BuildForm> {
    return this.passes.request('mase/buildForm', { path, model });
  }

  check(target: PassTarget, form: string): Check {
    return this.passes.check(target, form);
  }

  /** Null where the person cancelled it. The document is not shown: that is for this side. */
  emit({ path, model }: PassTarget, order: { build?: Build; scope?: string }): Promise<Emission | null> {
    return this.passes.execute('mase.emitVerilog', { path, model, ...order, show: false });
  }

  simulate({ path, model }: PassTarget): Promise<Simulation | null> {
    return this.passes.execute('mase.simulateVerilog', { path, model, show: false });
  }

  save({ path, model }: PassTarget, folder: string): Promise<Emission | null> {
    return this.passes.execute('mase.saveVerilog', { path, model, folder, show: false });
  }

  close({ path, model }: PassTarget): Promise<unknown> {
    return this.passes.execute('mase.closeVerilog', { path, model });
  }

  /** What to highlight on both sides of a place; nothing while the server does not run. */
  async counterparts(uri: string, position: { line: number; character: number }): Promise<Counterpart[]> {
    return this.server.running === undefined ? [] : this.passes.request('mase/counterparts', { uri, position });
  }
}
