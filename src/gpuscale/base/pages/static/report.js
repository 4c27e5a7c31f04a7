// The report of a finished run: its charts and its events; its summary is in the file as it is.
import { byId } from "./dom.js";
import { showFinished } from "./finished.js";
import { RunStore } from "./store.js";

const run = JSON.parse(byId("run").textContent);
delete run.started; // a report is of a whole run, also where the run was live
showFinished(new RunStore(run));
